//! The `imports` of a file: reading them, replacing them, and adding one entry that can be taken out byte for byte.
use std::ops::Range;

use super::ConfigError;

/// Behind the line that we add to a file without `imports`; tells it from everybody else's.
const MARK: &str = " # added by kubectl-shim, which removes it again";
const WRONG_TYPE: ConfigError = ConfigError::WrongType { key: "imports", expected: "a list of texts" };

/// The entries as they are written.
pub fn entries(path: &str, text: &str) -> Result<Vec<String>, ConfigError> {
    match super::schema::parse(path, text)?.remove("imports") {
        None => Ok(Vec::new()),
        Some(value) => value.try_into().map_err(|_| WRONG_TYPE),
    }
}

/// `text` with exactly `paths` as its imports.
pub fn replace(path: &str, text: &str, paths: &[String]) -> Result<String, ConfigError> {
    let list = format!("[{}]", paths.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(", "));
    Ok(match span(path, text)? {
        Some(span) => format!("{}{list}{}", &text[..span.start], &text[span.end..]),
        None => prepend(text, &format!("imports = {list}\n")),
    })
}

/// `text` with `entry` among its imports, in front of the others.
pub fn add(path: &str, text: &str, entry: &str) -> Result<String, ConfigError> {
    Ok(match span(path, text)? {
        None => prepend(text, &own_line(entry)),
        Some(span) => {
            let others = !entries(path, text)?.is_empty();
            let at = span.start + 1;
            format!("{}{}{}", &text[..at], first_entry(entry, others), &text[at..])
        }
    })
}

/// Undoes [`add`]; a text that has no `entry` of ours comes back as it is.
pub fn remove(path: &str, text: &str, entry: &str) -> Result<String, ConfigError> {
    if let Some(at) = line_at(text, &own_line(entry)) {
        return Ok(without(text, at));
    }
    let others: Vec<_> = entries(path, text)?.into_iter().filter(|other| other != entry).collect();
    match span(path, text)? {
        Some(span) if text[span.clone()].contains(entry) => remove_from(path, text, span, entry, &others),
        _ => Ok(text.to_owned()),
    }
}

/// The exact undoing where the list is as [`add`] left it, else the list written anew: somebody's rewriting must not
/// make us leave `[ , ]` behind, which containerd refuses.
fn remove_from(
    path: &str,
    text: &str,
    list: Range<usize>,
    entry: &str,
    others: &[String],
) -> Result<String, ConfigError> {
    let inside = list.start + 1;
    for ours in [first_entry(entry, true), first_entry(entry, false)] {
        if text[inside..].starts_with(&ours) {
            let rest = without(text, inside..inside + ours.len());
            if entries(path, &rest).is_ok_and(|left| left == others) {
                return Ok(rest);
            }
        }
    }
    replace(path, text, others)
}

/// Whether an entry makes containerd load every `*.toml` file of a directory, and of which; relative to `base`.
pub fn directory(entry: &str, base: &str) -> Option<String> {
    let directory = entry.strip_suffix("/*.toml")?;
    let plain = !directory.contains(['*', '?', '[', '\\']) && !directory.split('/').any(|part| part == "..");
    plain.then(|| if directory.starts_with('/') { directory.to_owned() } else { format!("{base}/{directory}") })
}

/// Where the value of `imports` stands, brackets included.
fn span(path: &str, text: &str) -> Result<Option<Range<usize>>, ConfigError> {
    let file = toml::de::DeTable::parse(text)
        .map_err(|error| ConfigError::NotToml { path: path.to_owned(), message: error.to_string() })?;
    let Some(value) = file.get_ref().get("imports") else { return Ok(None) };
    if value.get_ref().is_array() { Ok(Some(value.span())) } else { Err(WRONG_TYPE) }
}

/// A key before the first table header belongs to the root table, wherever the file's own keys are.
fn prepend(text: &str, line: &str) -> String {
    let (mark, rest) = text.split_at(if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 });
    format!("{mark}{line}{rest}")
}

fn own_line(entry: &str) -> String {
    format!("imports = [{}]{MARK}\n", quoted(entry))
}

fn first_entry(entry: &str, others: bool) -> String {
    format!("{}{}", quoted(entry), if others { ", " } else { "" })
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn line_at(text: &str, line: &str) -> Option<Range<usize>> {
    let at = text.find(line)?;
    let starts_a_line = at == 0 || text[..at].ends_with(['\n', '\u{feff}']);
    starts_a_line.then_some(at..at + line.len())
}

fn without(text: &str, range: Range<usize>) -> String {
    format!("{}{}", &text[..range.start], &text[range.end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "/etc/containerd/conf.d/kubectl-shim*.toml";

    fn added(text: &str) -> String {
        add("x", text, ENTRY).unwrap()
    }

    #[test]
    fn an_entry_goes_in_and_out_without_a_trace() {
        for text in [
            "",
            "version = 3",
            "version = 3\r\nimports = []\r\n",
            "imports = [ ]",
            "imports = [\n  # mine\n]\n[plugins]\n",
            "imports = [\"/a/*.toml\", '/b.toml',]\n",
            "imports=['/a/*.toml'] # keep\nversion=2\n[debug]\n  level = 'info'\n",
            "\u{feff}version = 2\n",
            "# imports = ['/x']\n[imports-not]\n",
        ] {
            let with = added(text);
            assert!(entries("x", &with).unwrap().contains(&ENTRY.to_owned()), "{with}");
            assert_eq!(entries("x", &with).unwrap().len(), entries("x", text).unwrap().len() + 1, "{with}");
            assert_eq!(remove("x", &with, ENTRY).unwrap(), text);
        }
    }

    #[test]
    fn entries_that_others_added_later_stay() {
        let with = added("imports = []\n").replace(']', ", '/other/*.toml']");
        assert_eq!(entries("x", &remove("x", &with, ENTRY).unwrap()).unwrap(), ["/other/*.toml"]);
    }

    #[test]
    fn a_list_that_somebody_has_rewritten_stays_valid() {
        let quoted = quoted(ENTRY);
        for list in [format!("[{quoted} ,'/a']"), format!("['/a', {quoted}]"), format!("[\n'/a',\n{quoted} ,]")] {
            let rest = remove("x", &format!("imports = {list}\nversion = 2\n"), ENTRY).unwrap();
            assert_eq!(entries("x", &rest).unwrap(), ["/a"], "{rest}");
        }
        assert_eq!(entries("x", &remove("x", &format!("imports = [{quoted} ,]"), ENTRY).unwrap()).unwrap(), [""; 0]);
    }

    #[test]
    fn replacing_keeps_everything_else() {
        let paths = ["/a b".to_owned(), "/c".to_owned()];
        assert_eq!(
            replace("x", "a = 1\nimports = ['/x'] # y\n", &paths).unwrap(),
            "a = 1\nimports = [\"/a b\", \"/c\"] # y\n"
        );
        assert_eq!(replace("x", "[t]\n", &[]).unwrap(), "imports = []\n[t]\n");
    }

    #[test]
    fn only_a_glob_over_a_whole_directory_is_a_place_for_a_drop_in() {
        assert_eq!(directory("/etc/containerd/conf.d/*.toml", "/x").as_deref(), Some("/etc/containerd/conf.d"));
        assert_eq!(directory("conf.d/*.toml", "/etc/containerd").as_deref(), Some("/etc/containerd/conf.d"));
        for entry in ["/a/b.toml", "/a/*", "/a/nvidia*.toml", "/*/conf.d/*.toml", "../x/*.toml", ENTRY] {
            assert_eq!(directory(entry, "/x"), None, "{entry}");
        }
    }

    #[test]
    fn imports_of_another_type_are_refused() {
        assert_eq!(add("x", "imports = '/a'", ENTRY), Err(WRONG_TYPE));
        assert_eq!(entries("x", "imports = [1]"), Err(WRONG_TYPE));
    }
}
