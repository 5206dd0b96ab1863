//! Texts with places to fill.

/// `text` with every `{{NAME}}` replaced by its value.
pub(crate) fn fill(text: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_filled() {
        assert_eq!(fill("{{A}}-{{B}}-{{A}}", &[("A", "1"), ("B", "2")]), "1-2-1");
    }
}
