//! Standard output for what was asked for, standard error for everything else.
use std::{
    cell::Cell,
    io::{self, BufRead as _, ErrorKind, IsTerminal as _, Write as _},
};

use jiff::{Timestamp, Zoned};

use crate::{
    connect::Env,
    exit::Failure,
    next::{self, Caller, Next},
    palette::{ColorChoice, Palette},
    views::Screen,
};

/// The two streams of this process.
pub struct Console {
    /// How hints are written.
    pub caller: Caller,
    out: Palette,
    err: Palette,
    width: Option<usize>,
    reader: Cell<Reader>,
}

/// Whether somebody still reads standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    There,
    Gone,
}

/// Whether a question can be asked, and how it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Agreed.
    Yes,
    /// Not agreed.
    No,
    /// There is nobody to ask.
    NoTerminal,
}

impl Console {
    /// The console of this process.
    pub fn new(caller: Caller, color: ColorChoice, env: &Env) -> Self {
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self {
            caller,
            out: Palette::decide(color, env, out),
            err: Palette::decide(color, env, err),
            width: if out { columns() } else { None },
            reader: Cell::new(Reader::There),
        }
    }

    /// What views for standard output have to know.
    pub fn screen(&self) -> Screen {
        Screen { palette: self.out, width: self.width, now: Timestamp::now() }
    }

    /// What views for standard error have to know.
    pub fn side_screen(&self) -> Screen {
        Screen { palette: self.err, width: None, now: Timestamp::now() }
    }

    /// Writes what was asked for. A pipe that nobody reads any more is no error: the command's work goes on.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.reader.set(Reader::Gone),
            Err(error) => return Err(Failure::error(format!("standard output can't be written: {error}"))),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Writes one line of what was asked for.
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        self.print(&format!("{text}\n"))
    }

    /// Writes one line with the time before it.
    pub fn event(&self, text: &str) -> Result<(), Failure> {
        self.line(&timed(text))
    }

    /// The same beside.
    pub fn event_aside(&self, text: &str) {
        self.note(&timed(text));
    }

    /// Whether nobody reads standard output any more.
    pub fn is_closed(&self) -> bool {
        self.reader.get() == Reader::Gone
    }

    /// Says something beside; there is nobody to tell when that fails.
    pub fn note(&self, text: &str) {
        let text = text.trim_end_matches('\n');
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// `Warning: …`
    pub fn warn(&self, text: &str) {
        self.note(&format!("Warning: {text}"));
    }

    /// The `Next:` lines.
    pub fn next(&self, next: &[Next]) {
        if !next.is_empty() {
            self.note(&next::block(&self.caller, next));
        }
    }

    /// Asks a question whose default is no.
    pub fn ask(&self, question: &str) -> Answer {
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Answer::NoTerminal;
        }
        let _ = write!(io::stderr().lock(), "{question} [y/N] ");
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        match (read, answer.trim().to_lowercase().as_str()) {
            (Ok(_), "y" | "yes") => Answer::Yes,
            _ => Answer::No,
        }
    }
}

fn timed(text: &str) -> String {
    format!("{} {text}", Zoned::now().strftime("%H:%M:%S"))
}

/// Width of the terminal; clap brings the measure along.
fn columns() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}
