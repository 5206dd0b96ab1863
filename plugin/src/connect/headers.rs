//! Headers every request carries: who asks, and in whose name.

use http::{HeaderMap, HeaderName, HeaderValue, header::USER_AGENT};
use kube::config::AuthInfo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::ConnectError;

/// What a header name may hold; the rest of an extra's key is percent-encoded, as the API server expects it.
const NOT_IN_HEADER_NAMES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// User-Agent and impersonation.
pub(super) fn headers(user: &AuthInfo) -> Result<HeaderMap, ConnectError> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, value(&user_agent())?);
    let Some(name) = &user.impersonate else { return Ok(headers) };
    headers.insert("impersonate-user", value(name)?);
    if let Some(uid) = &user.impersonate_uid {
        headers.insert("impersonate-uid", value(uid)?);
    }
    for group in user.impersonate_groups.iter().flatten() {
        headers.append("impersonate-group", value(group)?);
    }
    for (key, values) in user.impersonate_user_extra.iter().flatten() {
        let name = extra_name(key)?;
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(headers)
}

/// `kubectl-shim/v0.1.0 (linux/amd64)`, in the form of kubectl's own.
fn user_agent() -> String {
    format!("kubectl-shim/v{} ({}/{})", env!("CARGO_PKG_VERSION"), go_os(), go_arch())
}

/// Servers and audit logs know Go's names.
fn go_os() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    }
}

fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        other => other,
    }
}

fn extra_name(key: &str) -> Result<HeaderName, ConnectError> {
    let key = utf8_percent_encode(key, NOT_IN_HEADER_NAMES);
    let name = format!("impersonate-extra-{key}").to_ascii_lowercase();
    name.parse().map_err(|_| ConnectError::Refused(format!("{name:?} is no header name")))
}

fn value(text: &str) -> Result<HeaderValue, ConnectError> {
    HeaderValue::from_str(text)
        .map_err(|_| ConnectError::Refused(format!("{text:?} cannot be sent: it holds control characters")))
}
