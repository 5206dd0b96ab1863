//! The built program, run against a stub.
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::Cluster;

/// Nothing here takes longer on a machine that is busy with other things.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A running controller; it is killed with the test.
pub struct Controller {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    _kubeconfig: tempfile::NamedTempFile,
}

impl Controller {
    /// Starts it with these variables alone.
    pub fn start(cluster: &Cluster, variables: &[(&str, &str)]) -> Self {
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(kubeconfig.path(), cluster.kubeconfig()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_shim-controller"));
        command.args(["--image", "installer", "--listen", "127.0.0.1:0", "--log-format", "json"]).env_clear();
        command.env("KUBECONFIG", kubeconfig.path()).envs(variables.iter().copied()).stdin(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, stderr) = (log.clone(), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Self { child, log, _kubeconfig: kubeconfig }
    }

    /// Waits until it says something, and returns that line.
    pub fn says(&self, words: &str) -> String {
        eventually(|| {
            let log = self.log.lock().unwrap();
            log.iter().find(|line| line.contains(words)).cloned().ok_or_else(|| format!("no {words:?} in {log:#?}"))
        })
    }

    /// What /metrics says now.
    pub fn metrics(&self) -> Metrics {
        let line: serde_json::Value = serde_json::from_str(&self.says("serving /healthz")).unwrap();
        Metrics(get(line["address"].as_str().unwrap(), "/metrics"))
    }

    /// Waits until a series has this value, and returns everything that /metrics says then.
    pub fn shows(&self, series: &str, value: f64) -> Metrics {
        eventually(|| {
            let metrics = self.metrics();
            let found = metrics.value(series);
            if found == Some(value) {
                return Ok(metrics);
            }
            Err(format!("{series} is {found:?} instead of {value}; log: {:#?}", self.log.lock().unwrap()))
        })
    }

    /// Waits until the good node is ready, the bad one has failed, and both are told of.
    pub fn settles(&self) -> Metrics {
        self.shows("shim_controller_shim_nodes_ready{shim=\"wasmtime\"}", 1.0);
        self.shows("shim_controller_shim_nodes_failed{shim=\"wasmtime\"}", 1.0)
    }

    /// Asks it to end, and waits.
    pub fn stop(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        eventually(|| self.child.try_wait().unwrap().ok_or_else(|| "it does not end".to_owned()))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of /metrics.
pub struct Metrics(pub String);

impl Metrics {
    /// The value of a series, written as the text has it.
    pub fn value(&self, series: &str) -> Option<f64> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }

    /// Names and types of all metrics.
    pub fn types(&self) -> BTreeMap<&str, &str> {
        self.0.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
    }

    /// Whether a query may ask for this name: that of a metric, or of a series of a histogram.
    pub fn has(&self, name: &str) -> bool {
        let types = self.types();
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        types.contains_key(name) || histogram.is_some_and(|name| types.get(name) == Some(&"histogram"))
    }
}

/// Asks until there is an answer; the last error fails the test.
pub fn eventually<T>(mut ask: impl FnMut() -> Result<T, String>) -> T {
    let started = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(error) => assert!(started.elapsed() < DEADLINE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
    body.to_owned()
}
