//! Prometheus' text format, as far as it is asked.
use std::time::Duration;

/// A histogram: how often a value was at most so much.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// Upper bound, and the count of values up to it; ascending.
    buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// The histogram of this name and this one label.
    pub fn read(text: &str, name: &str, (key, value): (&str, &str)) -> Self {
        let (start, label) = (format!("{name}_bucket{{"), format!("{key}=\"{value}\""));
        let bucket = |line: &str| {
            let (labels, count) = line.strip_prefix(&start)?.split_once("} ")?;
            let bound = labels.split(',').find_map(|label| label.strip_prefix("le=\"")?.strip_suffix('"'))?;
            let is_wanted = labels.split(',').any(|found| found == label);
            is_wanted.then_some((bound.replace("+Inf", "inf").parse().ok()?, count.split(' ').next()?.parse().ok()?))
        };
        Self { buckets: text.lines().filter_map(bucket).collect() }
    }

    /// What came after `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let old = |at: usize| before.buckets.get(at).map_or(0.0, |bucket| bucket.1);
        let buckets = self.buckets.iter().enumerate().map(|(at, (bound, count))| (*bound, count - old(at)));
        Self { buckets: buckets.collect() }
    }

    /// How many values there are.
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |bucket| bucket.1)
    }

    /// The value below which that share of all lies, taken as spread evenly inside of a bucket.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = share * self.count();
        let at = self.buckets.iter().position(|bucket| bucket.1 >= rank && bucket.1 > 0.0)?;
        let (low, below) = if at == 0 { (0.0, 0.0) } else { self.buckets[at - 1] };
        let (high, upto) = self.buckets[at];
        // Of the last bucket only its lower bound is known.
        let value = if high.is_finite() { low + (high - low) * (rank - below) / (upto - below) } else { low };
        Duration::try_from_secs_f64(value).ok()
    }
}

/// The sum of a metric over all series that have these labels.
pub(crate) fn sum(text: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |set: &str| labels.iter().all(|(key, value)| set.contains(&format!("{key}=\"{value}\"")));
    let value = |line: &str| {
        let (set, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
        if has(set) { value.split(' ').next()?.parse::<f64>().ok() } else { None }
    };
    text.lines().filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE pass_seconds histogram
pass_seconds_sum 9.0
pass_seconds_count 10
pass_seconds_bucket{le=\"0.5\",phase=\"act\"} 4
pass_seconds_bucket{le=\"1.0\",phase=\"act\"} 9
pass_seconds_bucket{le=\"+Inf\",phase=\"act\"} 10
pass_seconds_bucket{le=\"0.5\",phase=\"plan\"} 8
pass_seconds_bucket{le=\"+Inf\",phase=\"plan\"} 8
other_seconds_bucket{le=\"0.5\"} 1
requests_total{verb=\"PATCH\",resource=\"nodes\",code=\"200\"} 5
requests_total{verb=\"PATCH\",resource=\"nodes\",code=\"409\"} 2
requests_total{verb=\"GET\",resource=\"nodes\",code=\"200\"} 100
";

    const ACT: (&str, &str) = ("phase", "act");

    fn is(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() < 1e-9
    }

    #[test]
    fn quantiles_lie_inside_their_bucket() {
        let histogram = Histogram::read(TEXT, "pass_seconds", ACT);
        assert!(is(Histogram::read(TEXT, "pass_seconds", ("phase", "plan")).count(), 8.0));
        assert!(is(histogram.count(), 10.0));
        assert_eq!(histogram.quantile(0.2), Some(Duration::from_millis(250)));
        assert_eq!(histogram.quantile(0.5), Some(Duration::from_millis(600)));
        assert_eq!(histogram.quantile(1.0), Some(Duration::from_secs(1)));
    }

    #[test]
    fn only_what_came_later_counts() {
        let before = Histogram::read(&TEXT.replace("} 9\n", "} 7\n").replace("} 10\n", "} 8\n"), "pass_seconds", ACT);
        let later = Histogram::read(TEXT, "pass_seconds", ACT).since(&before);
        assert!(is(later.count(), 2.0));
        assert_eq!(later.since(&later).quantile(0.5), None);
    }

    #[test]
    fn series_are_summed_by_their_labels() {
        assert!(is(sum(TEXT, "requests_total", &[("verb", "PATCH"), ("resource", "nodes")]), 7.0));
        assert!(is(sum(TEXT, "requests_total", &[("verb", "LIST")]), 0.0));
    }
}
