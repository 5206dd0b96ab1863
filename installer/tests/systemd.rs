//! What systemd is asked for around a restart, on a played system bus.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]
use std::{
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use shim_installer::{
    deadline::{Deadline, Interrupt},
    systemd::{Systemd, SystemdError},
};

const UNIT: &str = "containerd.service";
/// What systemd is asked, as far as it matters here.
const METHODS: [&str; 6] = ["Hello", "ResetFailedUnit", "RestartUnit", "GetJob", "GetUnit", "Get"];

/// A played systemd.
#[derive(Debug)]
struct Played {
    asked: Vec<String>,
    pid: u32,
    /// What a restart adds to the process id.
    step: u32,
}

/// The answer's signature and value; absent: an error.
type Answer = Option<(&'static str, Vec<u8>)>;

impl Played {
    fn answer(&mut self, method: &str, call: &str) -> Answer {
        let property = ["MainPID", "KillMode", "ActiveState", "SubState"].into_iter().find(|name| call.contains(name));
        self.asked.push(property.unwrap_or(method).to_owned());
        match (method, property) {
            ("Hello", _) => Some(("s", text(":1.7"))),
            ("RestartUnit", _) => {
                self.pid += self.step;
                Some(("o", text("/org/freedesktop/systemd1/job/5")))
            }
            ("GetUnit", _) => Some(("o", text("/org/freedesktop/systemd1/unit/x"))),
            ("Get", Some("MainPID")) => Some(("v", [b"\x01u\0\0".to_vec(), self.pid.to_le_bytes().to_vec()].concat())),
            ("Get", Some("KillMode")) => Some(("v", [b"\x01s\0\0".to_vec(), text("mixed")].concat())),
            ("Get", Some(_)) => Some(("v", [b"\x01s\0\0".to_vec(), text("active")].concat())),
            // The job is done; nothing had failed that could be reset.
            _ => None,
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes(), b"\0"].concat()
}

fn serve(path: &Path, played: &Arc<Mutex<Played>>) {
    let (listener, played) = (UnixListener::bind(path).unwrap(), Arc::clone(played));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let played = Arc::clone(&played);
            thread::spawn(move || talk(stream.unwrap(), &played));
        }
    });
}

fn talk(mut stream: UnixStream, played: &Mutex<Played>) {
    for (until, answer) in
        [("AUTH", "OK 0123456789abcdef0123456789abcdef\r\n"), ("NEGOTIATE", "ERROR\r\n"), ("BEGIN", "")]
    {
        assert!(line(&mut stream).contains(until));
        stream.write_all(answer.as_bytes()).unwrap();
    }
    while let Some((serial, call)) = message(&mut stream) {
        let method = METHODS.iter().find(|method| call.contains(&format!("\0{method}\0"))).unwrap();
        let answer = played.lock().unwrap().answer(method, &call);
        stream.write_all(&reply(serial, answer)).unwrap();
    }
}

fn line(stream: &mut UnixStream) -> String {
    let mut bytes = vec![0];
    while !bytes.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.extend(byte);
    }
    String::from_utf8(bytes).unwrap()
}

/// Serial and whole text of the next message; none once the caller has gone.
fn message(stream: &mut UnixStream) -> Option<(u32, String)> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).ok()?;
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let mut rest = vec![0; (number(12).next_multiple_of(8) + number(4)) as usize];
    stream.read_exact(&mut rest).unwrap();
    Some((number(8), String::from_utf8_lossy(&rest).into_owned()))
}

fn reply(serial: u32, answer: Answer) -> Vec<u8> {
    let kind = if answer.is_some() { 2 } else { 3 };
    let (signature, body) = answer.unwrap_or_default();
    let mut fields = [b"\x05\x01u\0".as_slice(), &serial.to_le_bytes()].concat();
    if kind == 3 {
        fields.extend([b"\x04\x01s\0".to_vec(), text("org.freedesktop.systemd1.NoSuchJob")].concat());
    } else {
        fields.extend([b"\x08\x01g\0\x01", signature.as_bytes(), b"\0"].concat());
    }
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_le_bytes();
    let head = [b"l".as_slice(), &[kind, 1, 1], &length(&body), &1_u32.to_le_bytes(), &length(&fields)].concat();
    fields.resize(fields.len().next_multiple_of(8), 0);
    [head, fields, body].concat()
}

/// A restart that adds `step` to the process id, and what was asked for.
fn restart(step: u32) -> (Result<(), SystemdError>, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("bus");
    let played = Arc::new(Mutex::new(Played { asked: Vec::new(), pid: 100, step }));
    serve(&socket, &played);
    let systemd = Systemd::new(socket).unwrap();
    assert_eq!(systemd.kill_mode(UNIT).unwrap().as_deref(), Some("mixed"));
    let restarted = systemd.restart(UNIT, &Deadline::new(Duration::from_secs(20), &Interrupt::default()));
    let mut asked = std::mem::take(&mut played.lock().unwrap().asked);
    asked.retain(|asked| asked != "Hello" && asked != "GetUnit");
    (restarted, asked)
}

#[test]
fn starts_that_have_failed_are_forgotten_before_a_restart() {
    let (restarted, asked) = restart(1);
    restarted.unwrap();
    let want =
        ["KillMode", "ResetFailedUnit", "MainPID", "RestartUnit", "GetJob", "MainPID", "ActiveState", "SubState"];
    assert_eq!(asked, want);
}

#[test]
fn the_same_process_as_before_was_not_restarted() {
    let error = restart(0).0.unwrap_err();
    assert!(matches!(error, SystemdError::NotRestarted { pid: 100, .. }), "{error}");
}
