//! The cluster a Pod runs in, described like an entry of a kubeconfig.

use kube::config::{AuthInfo, Cluster};

use super::{
    Env,
    target::{Chosen, Named},
};

/// What the Pod's service account says; none outside a Pod.
pub(super) fn pod(env: &Env) -> Option<Chosen> {
    let host = env.var("KUBERNETES_SERVICE_HOST")?;
    let port = env.var("KUBERNETES_SERVICE_PORT")?;
    let file = |name: &str| env.service_account.join(name);
    let path = |name: &str| file(name).to_string_lossy().into_owned();
    if !file("token").is_file() {
        return None;
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let cluster = Cluster {
        server: Some(format!("https://{host}:{port}")),
        certificate_authority: Some(path("ca.crt")),
        ..Cluster::default()
    };
    let user = AuthInfo { token_file: Some(path("token")), ..AuthInfo::default() };
    Some(Chosen {
        cluster: Named { name: String::new(), entry: cluster },
        user: Named { name: String::new(), entry: user },
        namespace: namespace(env),
    })
}

fn namespace(env: &Env) -> Option<String> {
    let mounted = || std::fs::read_to_string(env.service_account.join("namespace")).ok();
    let text = env.var("POD_NAMESPACE").map(ToOwned::to_owned).or_else(mounted)?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
