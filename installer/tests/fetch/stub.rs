//! An HTTP server on 127.0.0.1 that answers as a test says.
use std::{
    io::{self, BufRead as _, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// What the server does with one request.
pub(crate) enum Reply {
    /// Status line and headers without the line ends, then the body with its length.
    Full(String, Vec<u8>),
    /// Says that the body is longer than it is, and hangs up.
    Short(Vec<u8>),
    /// A body that never ends.
    Endless,
    /// Says how long the body is and sends only some of it, then nothing.
    Stalled(Vec<u8>),
    /// Nothing at all.
    Silent,
}

impl Reply {
    pub(crate) fn ok(body: &[u8]) -> Self {
        Self::Full("200 OK".to_owned(), body.to_vec())
    }

    pub(crate) fn status(line: &str) -> Self {
        Self::Full(line.to_owned(), b"see the status".to_vec())
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::status(&format!("302 Found\r\nLocation: {to}"))
    }

    /// Sends it and, if it is not whole, waits until the client hangs up.
    pub(crate) fn send(&self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        match self {
            Self::Full(head, body) => {
                write!(stream, "HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len())?;
                stream.write_all(body)?;
                stream.flush()
            }
            Self::Short(body) => Self::begin(stream, body),
            Self::Endless => {
                write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
                loop {
                    stream.write_all(&[7; 4096])?;
                }
            }
            Self::Stalled(body) => {
                Self::begin(stream, body)?;
                until_closed(stream)
            }
            Self::Silent => until_closed(stream),
        }
    }

    fn begin(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len() + 1)?;
        stream.write_all(body)?;
        stream.flush()
    }
}

fn until_closed(stream: &mut impl Read) -> io::Result<()> {
    io::copy(stream, &mut io::sink()).map(drop)
}

/// A request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) at: Instant,
}

/// The server; its threads end with the test's process.
pub(crate) struct Stub {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Stub {
    /// `answer` gets the path and how many requests came before.
    pub(crate) fn start(answer: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stub = Self { port: listener.local_addr().unwrap().port(), seen: Arc::default() };
        let (seen, answer) = (stub.seen.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, answer) = (seen.clone(), answer.clone());
                // A client that hangs up is what some tests want.
                thread::spawn(move || serve(stream?, &seen, &*answer));
            }
        });
        stub
    }

    /// One answer for every request.
    pub(crate) fn always(answer: impl Fn() -> Reply + Send + Sync + 'static) -> Self {
        Self::start(move |_, _| answer())
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until there was a request.
    pub(crate) fn wait_for_request(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.seen().is_empty() {
            assert!(Instant::now() < deadline, "no request came");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Seen>>, answer: &dyn Fn(&str, usize) -> Reply) -> io::Result<()> {
    let head = request_head(&mut stream)?;
    let before = {
        let mut seen = seen.lock().unwrap();
        seen.push(Seen { head: head.clone(), at: Instant::now() });
        seen.len() - 1
    };
    let path = head.split_whitespace().nth(1).unwrap_or_default();
    answer(path, before).send(&mut stream)
}

/// Everything up to the empty line.
pub(crate) fn request_head(stream: &mut impl Read) -> io::Result<String> {
    let mut head = String::new();
    let mut reader = BufReader::new(stream);
    while reader.read_line(&mut head)? > 2 {}
    Ok(head)
}
