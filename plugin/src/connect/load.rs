//! Which kubeconfig files count, and what they say together.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use kube::config::{Kubeconfig, NamedAuthInfo, NamedCluster};
use serde_yaml::Value;

use super::{ConnectError, ConnectionFlags, Env};

/// The merged kubeconfig and where it came from.
pub(super) struct Loaded {
    pub(super) kubeconfig: Kubeconfig,
    /// For the error text when nothing names a cluster.
    pub(super) tried: String,
}

/// Reads `--kubeconfig` alone; else the files `KUBECONFIG` lists; else `~/.kube/config`.
pub(super) fn load(flags: &ConnectionFlags, env: &Env) -> Result<Loaded, ConnectError> {
    if let Some(path) = flags.kubeconfig.as_ref().filter(|p| !p.as_os_str().is_empty()) {
        let kubeconfig = read(path)?.ok_or_else(|| ConnectError::NoSuchFile(path.clone()))?;
        let tried = format!("{} names no cluster", path.display());
        return Ok(Loaded { kubeconfig, tried });
    }
    let files = files(env);
    Ok(Loaded { kubeconfig: merge(&files)?, tried: tried(&files) })
}

fn files(env: &Env) -> Vec<PathBuf> {
    match env.var("KUBECONFIG") {
        Some(list) => std::env::split_paths(list).filter(|p| !p.as_os_str().is_empty()).collect(),
        None => env.default_kubeconfig().into_iter().collect(),
    }
}

fn tried(files: &[PathBuf]) -> String {
    let names: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
    match names.as_slice() {
        [] => "there is no home directory to look for .kube/config in".to_owned(),
        [one] => format!("{one} names no cluster"),
        many => format!("none of {} names a cluster", many.join(", ")),
    }
}

fn merge(files: &[PathBuf]) -> Result<Kubeconfig, ConnectError> {
    let mut merged = Kubeconfig::default();
    for path in files {
        // A list may name files that do not exist yet: client-go skips them.
        let Some(next) = read(path)? else { continue };
        merged = merged.merge(next).map_err(|e| load_error(path, &e))?;
    }
    Ok(merged)
}

/// One file, with its paths made absolute; none if it does not exist.
fn read(path: &Path) -> Result<Option<Kubeconfig>, ConnectError> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text, path).map(Some),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(load_error(path, &super::explain::plain(&e))),
    }
}

fn parse(text: &str, path: &Path) -> Result<Kubeconfig, ConnectError> {
    let text = text.trim_start_matches('\u{feff}');
    let mut document: Value = serde_yaml::from_str(text).map_err(|e| load_error(path, &e))?;
    if document.is_null() {
        return Ok(Kubeconfig::default());
    }
    forget_empty_strings(&mut document);
    let mut kubeconfig: Kubeconfig = serde_yaml::from_value(document).map_err(|e| load_error(path, &e))?;
    resolve_paths(&mut kubeconfig, path);
    Ok(kubeconfig)
}

fn load_error(path: &Path, cause: &dyn std::fmt::Display) -> ConnectError {
    let cause = cause.to_string().replace('\n', " ");
    ConnectError::Load { path: path.to_owned(), cause }
}

/// client-go knows no difference between `field: ""`, `field: null` and no field; kube takes the first literally.
///
/// Only fields of the kubeconfig itself are touched: an empty variable of an exec plugin stays empty.
fn forget_empty_strings(document: &mut Value) {
    drop_empty(document);
    for (list, entry) in [("clusters", "cluster"), ("contexts", "context"), ("users", "user")] {
        let Some(items) = document.get_mut(list).and_then(Value::as_sequence_mut) else { continue };
        for entry in items.iter_mut().filter_map(|item| item.get_mut(entry)) {
            drop_empty(entry);
            if let Some(exec) = entry.get_mut("exec") {
                drop_empty(exec);
            }
            // kube cannot read a context without a cluster, and one bad context must not hide the others.
            if list == "contexts" {
                ensure_cluster(entry);
            }
        }
    }
}

fn drop_empty(fields: &mut Value) {
    if let Some(fields) = fields.as_mapping_mut() {
        fields.retain(|_, value| !value.is_null() && value.as_str() != Some(""));
    }
}

fn ensure_cluster(context: &mut Value) {
    if let Some(context) = context.as_mapping_mut() {
        context.entry("cluster".into()).or_insert_with(|| "".into());
    }
}

/// A path in a kubeconfig is relative to the file that holds it.
fn resolve_paths(kubeconfig: &mut Kubeconfig, file: &Path) {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let dir = absolute.parent().unwrap_or(Path::new("/"));
    for NamedCluster { cluster, .. } in &mut kubeconfig.clusters {
        resolve(dir, cluster.as_mut().and_then(|c| c.certificate_authority.as_mut()));
    }
    for NamedAuthInfo { auth_info, .. } in &mut kubeconfig.auth_infos {
        let Some(user) = auth_info else { continue };
        resolve(dir, user.client_certificate.as_mut());
        resolve(dir, user.client_key.as_mut());
        resolve(dir, user.token_file.as_mut());
        let command = user.exec.as_mut().and_then(|e| e.command.as_mut());
        // A bare program name is looked up in PATH.
        resolve(dir, command.filter(|c| c.contains(std::path::MAIN_SEPARATOR) || c.contains('/')));
    }
}

fn resolve(dir: &Path, path: Option<&mut String>) {
    if let Some(path) = path {
        *path = dir.join(&*path).to_string_lossy().into_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_strings_are_unset_but_plugin_variables_stay() {
        let text = r#"
current-context: ""
users:
- name: u
  user: {token: "", exec: {command: x, interactiveMode: "", env: [{name: A, value: ""}], args: [""]}}
contexts:
- {name: c, context: {user: "", namespace: ""}}
"#;
        let kubeconfig = parse(text, Path::new("/k/config")).unwrap();
        assert_eq!(kubeconfig.current_context, None);
        let user = kubeconfig.auth_infos[0].auth_info.as_ref().unwrap();
        assert!(user.token.is_none());
        let exec = user.exec.as_ref().unwrap();
        assert!(exec.interactive_mode.is_none());
        assert_eq!(exec.env.as_ref().unwrap()[0]["value"], "");
        assert_eq!(exec.args.as_ref().unwrap(), &[""]);
        let context = kubeconfig.contexts[0].context.as_ref().unwrap();
        assert_eq!((context.cluster.as_str(), &context.user, &context.namespace), ("", &None, &None));
    }

    #[test]
    fn paths_are_relative_to_their_file() {
        let text = "users: [{name: u, user: {tokenFile: t, client-key: /abs, exec: {command: bin/x}}}]";
        let kubeconfig = parse(text, Path::new("/k/config")).unwrap();
        let user = kubeconfig.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!(user.token_file.as_deref(), Some("/k/t"));
        assert_eq!(user.client_key.as_deref(), Some("/abs"));
        assert_eq!(user.exec.as_ref().unwrap().command.as_deref(), Some("/k/bin/x"));
    }
}
