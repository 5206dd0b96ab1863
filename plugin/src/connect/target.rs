//! One cluster and one user: what the chosen context names, with the flags on top.

use std::{collections::HashMap, time::Duration};

use http::Uri;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig};

use super::{
    ConnectError, ConnectionFlags, Env,
    incluster::pod,
    load::{Loaded, load},
    login::Login,
    proxy,
    validate::validate,
};

/// Everything a session needs to know; no other cluster or user of the kubeconfig has a say in it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) url: Uri,
    /// `--namespace`, the context's, the Pod's, or `default`.
    pub(super) namespace: String,
    pub(super) proxy: Option<Uri>,
    /// `--request-timeout`; none means to wait for ever.
    pub(super) request_timeout: Option<Duration>,
    pub(super) cluster: Named<Cluster>,
    pub(super) user: Named<AuthInfo>,
    pub(super) env: Env,
    pub(super) login: Login,
}

/// An entry of a kubeconfig with its name; the name is empty when flags alone describe the entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Named<T> {
    pub(super) name: String,
    pub(super) entry: T,
}

impl Target {
    /// Reads the kubeconfig files and decides; sends nothing and runs nothing.
    pub(super) fn find(flags: &ConnectionFlags, env: &Env) -> Result<Self, ConnectError> {
        let loaded = load(flags, env)?;
        let chosen = Chosen::of(&loaded.kubeconfig, flags)?.with(flags);
        if chosen.cluster.entry.server.is_some() {
            return chosen.into_target(flags, env);
        }
        match pod(env) {
            Some(pod) if chosen.cluster.name.is_empty() => pod.with(flags).into_target(flags, env),
            _ => Err(chosen.without_server(loaded)),
        }
    }
}

/// Names resolved, flags applied, nothing checked yet.
#[derive(Default)]
pub(super) struct Chosen {
    pub(super) cluster: Named<Cluster>,
    pub(super) user: Named<AuthInfo>,
    pub(super) namespace: Option<String>,
}

impl Chosen {
    fn of(kubeconfig: &Kubeconfig, flags: &ConnectionFlags) -> Result<Self, ConnectError> {
        let context = context(kubeconfig, flags)?;
        Ok(Self {
            cluster: cluster(kubeconfig, &context, flags)?,
            user: user(kubeconfig, &context, flags)?,
            namespace: context.namespace,
        })
    }

    fn with(mut self, flags: &ConnectionFlags) -> Self {
        override_cluster(&mut self.cluster.entry, flags);
        override_user(&mut self.user.entry, flags);
        override_impersonation(&mut self.user.entry, flags);
        if let Some(namespace) = given(flags.namespace.as_ref()) {
            self.namespace = Some(namespace);
        }
        self
    }

    fn into_target(self, flags: &ConnectionFlags, env: &Env) -> Result<Target, ConnectError> {
        validate(&self.cluster, &self.user)?;
        let url = server_url(self.cluster.entry.server.as_deref().unwrap_or_default())?;
        let proxy = match &self.cluster.entry.proxy_url {
            Some(text) => Some(proxy::of_cluster(text).map_err(ConnectError::Refused)?),
            None => proxy::of_environment(&url, env)?,
        };
        Ok(Target {
            login: Login::of(&self, &url)?,
            url,
            namespace: self.namespace.unwrap_or_else(|| "default".to_owned()),
            proxy,
            request_timeout: flags.request_timeout.filter(|t| !t.is_zero()),
            cluster: self.cluster,
            user: self.user,
            env: env.clone(),
        })
    }

    /// kubectl would try localhost:8080 here, which helps nobody.
    fn without_server(self, loaded: Loaded) -> ConnectError {
        let contexts: Vec<_> = loaded.kubeconfig.contexts.into_iter().map(|c| c.name).collect();
        match self.cluster.name.as_str() {
            "" if contexts.is_empty() => ConnectError::NoKubeconfig { tried: loaded.tried },
            "" => ConnectError::NoContext { contexts },
            name => ConnectError::Invalid(vec![format!("no server found for cluster {name:?}")]),
        }
    }
}

fn context(kubeconfig: &Kubeconfig, flags: &ConnectionFlags) -> Result<Context, ConnectError> {
    let find = |name: &str| kubeconfig.contexts.iter().find(|c| c.name == name);
    match (given(flags.context.as_ref()), &kubeconfig.current_context) {
        (Some(name), _) => match find(&name) {
            Some(named) => Ok(named.context.clone().unwrap_or_default()),
            None => Err(ConnectError::DoesNotExist { kind: "context", name }),
        },
        (None, Some(name)) => match find(name) {
            Some(named) => Ok(named.context.clone().unwrap_or_default()),
            None => Err(ConnectError::ContextNotFound(name.clone())),
        },
        (None, None) => Ok(Context::default()),
    }
}

fn cluster(
    kubeconfig: &Kubeconfig,
    context: &Context,
    flags: &ConnectionFlags,
) -> Result<Named<Cluster>, ConnectError> {
    let asked = given(flags.cluster.as_ref());
    let name = asked.clone().unwrap_or_else(|| context.cluster.clone());
    let found = kubeconfig.clusters.iter().find(|c| c.name == name);
    match (found, asked) {
        (None, Some(name)) => Err(ConnectError::DoesNotExist { kind: "cluster", name }),
        // --server may still make up for a cluster that the context names in vain.
        (None, None) => Ok(Named { name, entry: Cluster::default() }),
        (Some(found), _) => Ok(Named { name, entry: found.cluster.clone().unwrap_or_default() }),
    }
}

fn user(kubeconfig: &Kubeconfig, context: &Context, flags: &ConnectionFlags) -> Result<Named<AuthInfo>, ConnectError> {
    let asked = given(flags.user.as_ref());
    let name = asked.clone().or_else(|| context.user.clone()).unwrap_or_default();
    let found = kubeconfig.auth_infos.iter().find(|u| u.name == name);
    match (found, asked) {
        (None, Some(name)) => Err(ConnectError::DoesNotExist { kind: "auth info", name }),
        (None, None) => Ok(Named { name, entry: AuthInfo::default() }),
        (Some(found), _) => Ok(Named { name, entry: found.auth_info.clone().unwrap_or_default() }),
    }
}

/// An empty flag counts as not given, as in kubectl.
fn given(flag: Option<&String>) -> Option<String> {
    flag.filter(|text| !text.is_empty()).cloned()
}

fn override_cluster(cluster: &mut Cluster, flags: &ConnectionFlags) {
    let server = given(flags.server.as_ref());
    let server_name = given(flags.tls_server_name.as_ref());
    let authority = given(flags.certificate_authority.as_ref());
    if server.is_some() || server_name.is_some() {
        // The name in the kubeconfig belongs to the server in the kubeconfig.
        cluster.tls_server_name = server_name;
    }
    cluster.server = server.or_else(|| cluster.server.take());
    if authority.is_some() || flags.insecure_skip_tls_verify == Some(true) {
        cluster.certificate_authority = authority;
        cluster.certificate_authority_data = None;
        cluster.insecure_skip_tls_verify = None;
    }
    // kubectl ignores an explicit `=false`; who writes it wants the check, so it counts here.
    cluster.insecure_skip_tls_verify = flags.insecure_skip_tls_verify.or(cluster.insecure_skip_tls_verify);
    cluster.disable_compression = flags.disable_compression.or(cluster.disable_compression);
}

fn override_user(user: &mut AuthInfo, flags: &ConnectionFlags) {
    if let Some(token) = given(flags.token.as_ref()) {
        user.token = Some(token.into());
        user.token_file = None;
    }
    if let Some(file) = given(flags.client_certificate.as_ref()) {
        user.client_certificate = Some(file);
        user.client_certificate_data = None;
    }
    if let Some(file) = given(flags.client_key.as_ref()) {
        user.client_key = Some(file);
        user.client_key_data = None;
    }
    user.username = given(flags.username.as_ref()).or_else(|| user.username.take());
    if let Some(password) = given(flags.password.as_ref()) {
        user.password = Some(password.into());
    }
}

fn override_impersonation(user: &mut AuthInfo, flags: &ConnectionFlags) {
    user.impersonate = given(flags.impersonate.as_ref()).or_else(|| user.impersonate.take());
    user.impersonate_uid = given(flags.impersonate_uid.as_ref()).or_else(|| user.impersonate_uid.take());
    if !flags.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(flags.impersonate_groups.clone());
    }
    if !flags.impersonate_user_extra.is_empty() {
        let extra = user.impersonate_user_extra.insert(HashMap::new());
        for (key, value) in &flags.impersonate_user_extra {
            extra.entry(key.clone()).or_default().push(value.clone());
        }
    }
}

/// client-go takes a URL, or `host:port` without a path, which means plain HTTP.
fn server_url(text: &str) -> Result<Uri, ConnectError> {
    let refused = || ConnectError::Refused(format!("host must be a URL or a host:port pair: {text:?}"));
    let has_scheme = text.contains("://");
    let full = if has_scheme { text.to_owned() } else { format!("http://{text}") };
    let url: Uri = full.parse().map_err(|_| refused())?;
    let path_without_scheme = !has_scheme && url.path() != "/";
    match url.scheme_str() {
        Some("http" | "https") if url.host().is_some() && !path_without_scheme => Ok(url),
        _ => Err(refused()),
    }
}
