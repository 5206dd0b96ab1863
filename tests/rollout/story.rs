//! What happened in a run, for whoever reads a failure.

/// Lines, if anybody wants them.
#[derive(Debug)]
pub enum Story {
    Untold,
    Told(Vec<String>),
}

impl Story {
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Self::Told(lines) = self {
            lines.push(line());
        }
    }

    /// The last lines.
    pub fn end(&self, count: usize) -> String {
        match self {
            Self::Untold => String::new(),
            Self::Told(lines) => lines[lines.len().saturating_sub(count)..].join("\n"),
        }
    }
}
