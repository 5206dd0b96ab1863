//! Nodes done over time, drawn.
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use shim_scale::Progress;

use crate::{Measured, Round};

const SIZE: (u32, u32) = (900, 480);
const FONT: &str = "sans-serif";
/// One for each setting of `maxUpdate`; red, which many can't tell from green, is none of them.
const COLORS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(230, 159, 0), RGBColor(0, 158, 115), RGBColor(86, 86, 86)];

/// Thick: ours. Thin: bare Jobs.
struct Line<'a> {
    label: String,
    progress: &'a Progress,
    color: RGBColor,
    width: u32,
}

pub(crate) fn draw(measured: &Measured, file: &Path) -> Result<()> {
    let colored = measured.rounds.iter().zip(COLORS.iter().cycle());
    let lines: Vec<_> = colored.flat_map(|(round, color)| lines(round, *color)).collect();
    // The library's errors borrow from the drawing.
    render(measured.nodes, &lines, file).map_err(|error| anyhow!("{} can't be drawn: {error}", file.display()))
}

fn render(nodes: usize, lines: &[Line<'_>], file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let ends = lines.iter().filter_map(|line| line.progress.last());
    let longest = ends.map(|end| end.0.as_secs_f64()).fold(1.0, f64::max);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{nodes} nodes: done over time"), (FONT, 20))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..longest * 1.02, 0..nodes * 21 / 20)?;
    chart.configure_mesh().x_desc("seconds").y_desc("nodes").label_style((FONT, 14)).max_light_lines(1).draw()?;
    for Line { label, progress, color, width } in lines {
        let style = ShapeStyle::from(color).stroke_width(*width);
        let points = progress.iter().map(|(time, done)| (time.as_secs_f64(), *done));
        let series = chart.draw_series(LineSeries::new(points, style))?;
        series.label(label).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    let position = SeriesLabelPosition::LowerRight;
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 14))
        .draw()?;
    Ok(area.present()?)
}

fn lines(round: &Round, color: RGBColor) -> Vec<Line<'_>> {
    let line = |what: &str, progress, width: u32| Line {
        label: format!("{what}, {} at a time", round.at_a_time),
        progress,
        color,
        width,
    };
    let ours = round.rollouts().zip([3, 2]).map(|((what, rollout), width)| line(what, &rollout.progress, width));
    ours.chain([line("bare Jobs", &round.bare.progress, 1)]).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_line_is_in_the_picture_with_its_name() {
        let file = std::env::temp_dir().join(format!("shim-scale-{}.svg", std::process::id()));
        let progress: Progress = (0..=10).map(|at: u32| (Duration::from_secs(at.into()), 100 * at as usize)).collect();
        let line = |label: &str, width| Line { label: label.to_owned(), progress: &progress, color: COLORS[0], width };
        render(1000, &[line("install, 100 at a time", 3), line("bare Jobs", 1)], &file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        assert!(text.contains("1000 nodes") && text.contains("install, 100 at a time") && text.contains("bare Jobs"));
        assert!(text.matches("<polyline").count() >= 4, "{text}");
    }
}
