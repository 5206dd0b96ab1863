//! One row of a table: a cluster, a kubeconfig, flags and variables, and what has to come out.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, Command, FromArgMatches as _};
use kubectl_shim::connect::{Connection, ConnectionFlags, Env, connect};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    api::{Api, Behaviour, Seen, version},
    pki::{Authority, Pair},
    proxy::{Kind, Proxy},
};

/// What has to come out of a row.
pub enum Expect {
    /// `/version` is answered, and the request looked like this.
    Works(fn(&Outcome) -> bool),
    /// The text for the user holds this.
    Fails(&'static str),
}

pub struct Row {
    pub name: &'static str,
    /// What kubectl does with it.
    pub kubectl: &'static str,
    pub given: fn(&mut Case),
    pub expect: Expect,
}

pub fn row(name: &'static str, kubectl: &'static str, given: fn(&mut Case), expect: Expect) -> Row {
    Row { name, kubectl, given, expect }
}

/// Works, whatever else was sent.
pub fn works() -> Expect {
    Expect::Works(|_| true)
}

/// A request that came through.
pub struct Outcome {
    pub request: Seen,
    pub proxy: Vec<String>,
    pub namespace: String,
    /// How often the credential plugin ran.
    pub runs: usize,
}

impl Outcome {
    pub fn sent(&self, name: &str, value: &str) -> bool {
        self.request.values(name) == [value]
    }

    pub fn lacks(&self, name: &str) -> bool {
        self.request.values(name).is_empty()
    }
}

/// Placeholders in any text: `$URL`, `$PORT`, `$PROXY`, `$DIR`.
pub struct Case {
    pub dir: TempDir,
    pub authority: Authority,
    /// None: the stub speaks plain HTTP.
    pub server: Option<Pair>,
    pub listen: &'static str,
    pub behaviour: Behaviour,
    pub proxy: Kind,
    /// Fields of the one cluster, user and context.
    pub cluster: Value,
    pub user: Value,
    pub context: Value,
    /// The whole kubeconfig, if the three above are not enough.
    pub kubeconfig: Option<Value>,
    pub arguments: Vec<String>,
    pub variables: BTreeMap<String, String>,
    pub terminal: bool,
}

impl Case {
    pub fn new() -> Self {
        let authority = Authority::new("test-ca");
        let certificate = STANDARD.encode(&authority.certificate);
        Self {
            server: Some(authority.server(&["127.0.0.1"])),
            dir: tempfile::tempdir().unwrap(),
            listen: "127.0.0.1:0",
            behaviour: Arc::new(|_| version()),
            proxy: Kind::Http,
            cluster: json!({ "server": "$URL", "certificate-authority-data": certificate }),
            user: json!({ "token": "t" }),
            context: json!({ "cluster": "k", "user": "u" }),
            kubeconfig: None,
            arguments: Vec::new(),
            variables: BTreeMap::from([("KUBECONFIG".to_owned(), "$DIR/config".to_owned())]),
            terminal: false,
            authority,
        }
    }

    pub fn flags(&mut self, line: &str) {
        self.arguments = line.split(' ').map(ToOwned::to_owned).collect();
    }

    pub fn variable(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// Logs in with an executable script that counts its runs.
    pub fn plugin(&mut self, script: &str, more: Value) {
        let script = format!("#!/bin/sh\necho run >> {}/runs\n{script}\n", self.dir.path().display());
        self.write("plugin", &script);
        make_executable(&self.dir.path().join("plugin"));
        let mut exec = json!({ "apiVersion": V1, "interactiveMode": "Never", "command": "./plugin" });
        merge(&mut exec, more);
        self.user = json!({ "exec": exec });
    }

    /// Starts the stubs and asks for `/version`.
    pub async fn run(self) -> Result<Outcome, String> {
        let started = self.start().await;
        let connection = started.connect().await?;
        let version = connection.client.apiserver_version().await.map_err(|e| connection.explain(&e))?;
        assert_eq!(version.git_version, "v1.34.0");
        Ok(Outcome {
            request: started.api.seen().pop().unwrap(),
            proxy: started.proxy.seen(),
            namespace: connection.default_namespace,
            runs: started.runs(),
        })
    }

    pub async fn start(self) -> Started {
        let api = Api::start(self.listen, self.server.as_ref(), self.behaviour.clone()).await;
        let proxy = Proxy::start(self.proxy, api.address).await;
        let scheme = if self.server.is_some() { "https" } else { "http" };
        let fill = |text: &str| {
            text.replace("$URL", &format!("{scheme}://{}", api.address))
                .replace("$PORT", &api.address.port().to_string())
                .replace("$PROXY", &proxy.address.to_string())
                .replace("$DIR", self.dir.path().to_str().unwrap())
        };
        let kubeconfig = self.kubeconfig.clone().unwrap_or_else(|| self.one_context());
        self.write("config", &fill(&kubeconfig.to_string()));
        let variables = self.variables.iter().map(|(k, v)| (k.clone(), fill(v))).collect();
        Started {
            flags: parse(self.arguments.iter().map(|a| fill(a))).unwrap(),
            env: Env { variables, home: None, terminal: self.terminal, service_account: self.dir.path().join("pod") },
            dir: self.dir,
            api,
            proxy,
        }
    }

    fn one_context(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "k", "cluster": self.cluster }],
            "users": [{ "name": "u", "user": self.user }],
            "contexts": [{ "name": "c", "context": self.context }],
        })
    }
}

pub struct Started {
    pub api: Api,
    pub proxy: Proxy,
    pub flags: ConnectionFlags,
    pub env: Env,
    pub dir: TempDir,
}

impl Started {
    pub async fn connect(&self) -> Result<Connection, String> {
        connect(&self.flags, &self.env).await.map_err(|e| e.to_string())
    }

    pub fn runs(&self) -> usize {
        std::fs::read_to_string(self.dir.path().join("runs")).map_or(0, |text| text.lines().count())
    }
}

pub const V1: &str = "client.authentication.k8s.io/v1";

/// Adds fields; a null takes one away.
pub fn merge(to: &mut Value, from: Value) {
    let Value::Object(from) = from else { panic!("an object") };
    for (key, value) in from {
        match value {
            Value::Null => drop(to.as_object_mut().unwrap().remove(&key)),
            value => to[key] = value,
        }
    }
}

/// Parses connection flags as the program would, before or after a subcommand.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<ConnectionFlags, clap::Error> {
    let command = ConnectionFlags::augment_args(Command::new("kubectl-shim")).subcommand(Command::new("status"));
    let matches = command.try_get_matches_from(std::iter::once("kubectl-shim".to_owned()).chain(arguments))?;
    ConnectionFlags::from_arg_matches(&matches)
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs all rows and reports every one that came out differently.
pub async fn check(rows: Vec<Row>) {
    let mut wrong = Vec::new();
    for Row { name, kubectl, given, expect } in rows {
        let mut case = Case::new();
        given(&mut case);
        let complaint = match (case.run().await, expect) {
            (Ok(outcome), Expect::Works(looks_right)) if looks_right(&outcome) => continue,
            (Err(text), Expect::Fails(part)) if text.contains(part) => continue,
            (Ok(Outcome { request, proxy, runs, namespace }), _) => {
                format!("worked: {request:?} proxy {proxy:?} runs {runs} namespace {namespace}")
            }
            (Err(text), Expect::Works(_)) => text,
            (Err(text), Expect::Fails(part)) => format!("{text:?} instead of {part:?}"),
        };
        wrong.push(format!("{name} (kubectl: {kubectl}): {complaint}"));
    }
    assert!(wrong.is_empty(), "{} rows came out wrong:\n{}", wrong.len(), wrong.join("\n"));
}
