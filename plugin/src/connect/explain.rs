//! kubectl's words for what went wrong with a request.

use std::{
    error::Error,
    io::{self, ErrorKind},
};

use jiff::Timestamp;
use kube::core::{Status, response::StatusCause};
use rustls::{CertificateError, InvalidMessage, pki_types::UnixTime};

use super::ConnectError;

/// kube's reason for an answer that is no Kubernetes `Status`.
const NO_STATUS: &str = "Failed to parse error data";
/// What the API server says of a path it does not serve, instead of naming an object.
const NO_RESOURCE: &str = "the server could not find the requested resource";
/// How much of a proxy's HTML page is shown.
const LONGEST_PAGE: usize = 300;

/// kubectl would accept it if an authority of the bundle signed it; rustls never does.
const OTHER_AUTHORITY: &str = "the server shows the certificate of an authority; this program accepts it only if the kubeconfig's certificate-authority holds that very certificate";

/// The complete text for the user, prefix included; `host` is the API server's host and port.
pub fn explain(error: &kube::Error, host: &str) -> String {
    match error {
        kube::Error::Api(status) => api(status),
        kube::Error::Service(cause) => transport(cause.as_ref(), host),
        kube::Error::HyperError(cause) => transport(cause, host),
        kube::Error::ReadEvents(cause) => transport(cause, host),
        kube::Error::SerdeError(cause) => format!("error: the server's answer cannot be read: {cause}"),
        other => format!("error: {}", chain(other)),
    }
}

fn api(status: &Status) -> String {
    let message = one_line(&status.message);
    match (status.code, status.reason.as_str()) {
        (401, _) | (_, "Unauthorized") => {
            let message = if message.is_empty() { "Unauthorized" } else { &message };
            format!("error: You must be logged in to the server ({message})")
        }
        (404, NO_STATUS) if message.starts_with("404 page not found") => missing_type(),
        (404, "NotFound") if message == NO_RESOURCE => missing_type(),
        (_, "Invalid") => invalid(status),
        (_, NO_STATUS) => format!("Error from server: {}", shortened(&message)),
        (_, "") => format!("Error from server: {message}"),
        (_, reason) => format!("Error from server ({}): {message}", one_line(reason)),
    }
}

/// The API server answers so for a group it does not serve, and Shims are the one kind we ask for that is not built in.
fn missing_type() -> String {
    "error: the server doesn't have a resource type \"shims\"".to_owned()
}

fn invalid(status: &Status) -> String {
    let details = status.details.as_ref();
    let causes: &[StatusCause] = details.map_or(&[], |d| &d.causes);
    let title = match details.filter(|d| !d.kind.is_empty() || !d.name.is_empty()) {
        Some(d) => format!("The {} {:?} is invalid", one_line(&d.kind), one_line(&d.name)),
        None if causes.is_empty() => format!("The request is invalid: {}", one_line(&status.message)),
        None => "The request is invalid".to_owned(),
    };
    let mut lines: Vec<String> = Vec::new();
    for line in causes.iter().map(cause) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    match lines.as_slice() {
        [] => title,
        [one] => format!("{title}: {one}"),
        many => format!("{title}: \n* {}", many.join("\n* ")),
    }
}

fn cause(cause: &StatusCause) -> String {
    match cause.field.as_str() {
        "" => one_line(&cause.message),
        field => one_line(&format!("{field}: {}", cause.message)),
    }
}

fn transport(error: &(dyn Error + 'static), host: &str) -> String {
    if let Some(ours) = causes(error).find_map(|e| e.downcast_ref::<ConnectError>()) {
        return ours.to_string();
    }
    // What wraps it repeats its text.
    if let Some(tls) = causes(error).find_map(|e| e.downcast_ref::<rustls::Error>()) {
        return format!("Unable to connect to the server: {}", tls_text(tls));
    }
    // Behind a proxy these two say something about the proxy.
    if !through_proxy(error) && is_refused(error) {
        return format!("The connection to the server {host} was refused - did you specify the right host or port?");
    }
    if !through_proxy(error) && causes(error).any(|e| e.to_string() == "dns error") {
        return format!("Unable to connect to the server: dial tcp: lookup {host}: {}", root(error));
    }
    format!("Unable to connect to the server: {}", chain(error))
}

fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let refused = |e: &io::Error| e.kind() == ErrorKind::ConnectionRefused;
    causes(error).filter_map(|e| e.downcast_ref()).any(refused)
}

fn root(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map(text).unwrap_or_default()
}

fn through_proxy(error: &(dyn Error + 'static)) -> bool {
    causes(error).map(ToString::to_string).any(|t| t.starts_with("tunnel error") || t.starts_with("SOCKS error"))
}

/// Every error once, outermost first, joined with `: `.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in causes(error).map(text) {
        // hyper says on which side it was; that helps nobody. Many libraries repeat the text of their cause.
        let repeated = texts.last().is_some_and(|last| last.contains(&text));
        if !text.starts_with("client error (") && !repeated {
            texts.retain(|earlier| !text.contains(earlier.as_str()));
            texts.push(text);
        }
    }
    one_line(&texts.join(": "))
}

fn text(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<io::Error>() {
        Some(io) => plain(io),
        None => error.to_string(),
    }
}

fn tls_text(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(e) => format!("tls: failed to verify certificate: x509: {}", x509(e)),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "tls: the server does not speak TLS; is its URL http:// instead of https://?".to_owned()
        }
        rustls::Error::General(text) => format!("tls: {text}"),
        other => format!("tls: {other}"),
    }
}

/// Go's sentences; rustls shows names as Rust values and times as numbers.
fn x509(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => names(&expected.to_str(), presented),
        CertificateError::ExpiredContext { time, not_after } => out_of_date(*time, "after", *not_after),
        CertificateError::NotValidYetContext { time, not_before } => out_of_date(*time, "before", *not_before),
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => OTHER_AUTHORITY.to_owned(),
        other => other.to_string(),
    }
}

fn names(wanted: &str, presented: &[String]) -> String {
    // They come as `DnsName("a.b")` and `IpAddress(1.2.3.4)`.
    let inner = |name: &String| name.split_once('(').map_or(name.clone(), |(_, n)| n.replace(['"', ')'], ""));
    match presented.iter().map(inner).collect::<Vec<_>>().as_slice() {
        [] => format!("certificate is not valid for any names, but wanted to match {wanted}"),
        names => format!("certificate is valid for {}, not {wanted}", names.join(", ")),
    }
}

fn out_of_date(now: UnixTime, relation: &str, limit: UnixTime) -> String {
    let text = |time: UnixTime| {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).map_or_else(|_| format!("@{seconds}"), |t| t.to_string())
    };
    let (now, limit) = (text(now), text(limit));
    format!("certificate has expired or is not yet valid: current time {now} is {relation} {limit}")
}

/// The system's text without Rust's ` (os error N)`.
pub(super) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |e| next(*e))
}

/// An io::Error skips the error it wraps when asked for its source.
fn next<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// Texts of servers go to a terminal: no line breaks, no escape sequences.
fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control()).collect()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_PAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
