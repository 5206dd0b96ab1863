//! A marked block at the end of somebody else's file, for releases that do not merge drop-ins.
use super::ConfigError;

/// First line of our block.
const BEGIN: &str = "# BEGIN kubectl-shim (its installer writes and removes this block)";
/// First line of our block in a file that had no newline at its end: then the newline before it is ours too.
const BEGIN_JOINED: &str =
    "# BEGIN kubectl-shim (its installer writes and removes this block and the line break before it)";
/// Last line of our block.
const END: &str = "# END kubectl-shim";

/// `text` with a block that holds `body`, which ends with a newline.
pub fn append(text: &str, body: &str) -> String {
    if text.is_empty() || text.ends_with('\n') {
        format!("{text}{BEGIN}\n{body}{END}\n")
    } else {
        format!("{text}\n{BEGIN_JOINED}\n{body}{END}\n")
    }
}

/// What was found around and in our block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The file without the block: what it was before [`append`], and whatever others have written since.
    pub rest: String,
    /// Content of the block; absent where there is none.
    pub body: Option<String>,
}

/// Takes our block out of `text`.
pub fn split(text: &str) -> Result<Split, ConfigError> {
    let Some((start, begin)) = find_begin(text) else {
        return Ok(Split { rest: text.to_owned(), body: None });
    };
    let body_start = after_line(text, start);
    let Some(end) = find_line(text, body_start, END) else {
        return Err(ConfigError::BlockDamaged { begin: BEGIN });
    };
    let after = &text[after_line(text, end)..];
    // Somebody has written below the block: the newline now separates their line from the one above.
    let joined = begin == BEGIN_JOINED && after.is_empty();
    let before = &text[..start - usize::from(joined && start > 0)];
    Ok(Split { rest: format!("{before}{after}"), body: Some(text[body_start..end].to_owned()) })
}

fn find_begin(text: &str) -> Option<(usize, &'static str)> {
    [BEGIN, BEGIN_JOINED].into_iter().find_map(|begin| find_line(text, 0, begin).map(|at| (at, begin)))
}

/// Offset of the first line from `from` that is `wanted`; an editor may have changed line ends to CRLF.
fn find_line(text: &str, from: usize, wanted: &str) -> Option<usize> {
    let mut at = from;
    for line in text[from..].split_inclusive('\n') {
        if line.trim_end_matches(['\r', '\n']) == wanted {
            return Some(at);
        }
        at += line.len();
    }
    None
}

fn after_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(text: &str) -> String {
        split(text).unwrap().rest
    }

    #[test]
    fn the_block_stands_on_lines_of_its_own_and_comes_out_again() {
        for text in ["", "a = 1\n", "a = 1", "a = 1\r\n", "a = 1\r\nb = 2", "\n\n", "# x"] {
            let with = append(text, "c = 3\n");
            assert!(with.ends_with("\nc = 3\n# END kubectl-shim\n"), "{with}");
            assert_eq!(split(&with).unwrap(), Split { rest: text.to_owned(), body: Some("c = 3\n".to_owned()) });
        }
    }

    #[test]
    fn lines_that_others_wrote_below_stay_and_stay_apart() {
        assert_eq!(rest(&format!("{}[x]\n", append("a = 1", "b = 2\n"))), "a = 1\n[x]\n");
        assert_eq!(rest(&format!("{}[x]\n", append("a = 1\n", "b = 2\n"))), "a = 1\n[x]\n");
    }

    #[test]
    fn a_block_with_other_line_ends_is_still_found() {
        assert_eq!(rest(&append("a = 1\n", "b = 2\n").replace('\n', "\r\n")), "a = 1\r\n");
    }

    #[test]
    fn a_block_without_its_end_is_refused() {
        let cut = append("a = 1\n", "b = 2\n").replace(END, "");
        assert!(matches!(split(&cut), Err(ConfigError::BlockDamaged { .. })));
    }
}
