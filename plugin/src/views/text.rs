//! Small texts: ages, and what a cluster must not do to a terminal.
use jiff::Timestamp;

/// Text of the cluster, harmless: control characters in caret notation, as kubectl writes them. Line breaks stay.
pub fn clean(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut clean, c| {
        match c {
            '\n' => clean.push(c),
            '\t' => clean.push(' '),
            c if c.is_ascii_control() => clean.extend(['^', char::from((c as u8) ^ 0x40)]),
            // C1 controls, and marks that turn the direction of writing.
            '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => clean.push('\u{fffd}'),
            c => clean.push(c),
        }
        clean
    })
}

/// The same on one line.
pub fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Time from `since` to `now` in kubectl's form: two units at most.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_second() - since.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: i64, unit: char, small: i64, rest: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{rest}") }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_kubectl() {
        let now = Timestamp::from_second(2_000_000_000).unwrap();
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (192, "3m12s"),
            (600, "10m"),
            (10_799, "179m"),
            (11_100, "3h5m"),
            (30_000, "8h"),
            (180_000, "2d2h"),
            (86_400 * 41, "41d"),
            (86_400 * 800, "2y70d"),
            (86_400 * 365 * 9, "9y"),
        ] {
            let since = Timestamp::from_second(2_000_000_000 - seconds).unwrap();
            assert_eq!(age(since, now), text, "{seconds}");
        }
    }

    #[test]
    fn control_characters_can_be_seen_and_do_nothing() {
        assert_eq!(clean("a\x1b[31mb\rc\x7f"), "a^[[31mb^Mc^?");
        assert_eq!(clean("\u{9b}31m\u{202e}x"), "\u{fffd}31m\u{fffd}x");
        assert_eq!(one_line(" a\n  b\t c "), "a b c");
    }
}
