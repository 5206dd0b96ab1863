//! What a server's answer or a broken transfer means, and how long to wait before the next try. Decides, does no IO.
use std::time::Duration;

use shim_core::report::{Failure, Reason};
use ureq::{Error, Timeout, http::StatusCode};

use super::{Limits, failure, location::Location};

/// Why a try did not bring the artifact.
#[derive(Debug)]
pub(super) enum Miss {
    /// It may come if tried again.
    Again {
        failure: Failure,
        /// What the server asked for.
        wait: Option<Duration>,
    },
    /// It will not come.
    Over(Failure),
    /// The deadline has passed.
    Late,
}

impl Miss {
    pub(super) fn over(reason: Reason, message: impl std::fmt::Display) -> Self {
        Self::Over(failure(reason, message))
    }

    fn again(message: impl std::fmt::Display, wait: Option<Duration>) -> Self {
        Self::Again { failure: failure(Reason::DownloadFailed, message), wait }
    }
}

/// Only 200 carries the artifact.
pub(super) fn status(status: StatusCode, retry_after: Option<&str>, location: &Location) -> Result<(), Miss> {
    let answer = format!("the server answered {status} for {location}");
    match status.as_u16() {
        200 => Ok(()),
        429 | 500..=599 => Err(Miss::again(answer, retry_after.and_then(seconds))),
        404 | 410 => Err(Miss::over(Reason::ArtifactNotFound, format!("{answer}; correct the location"))),
        401 | 403 => Err(Miss::over(Reason::DownloadRefused, format!("{answer}; it needs other credentials"))),
        _ => Err(Miss::over(Reason::DownloadRefused, answer)),
    }
}

/// `Retry-After` as a number; its other form, a date, would need the server's clock.
fn seconds(retry_after: &str) -> Option<Duration> {
    retry_after.trim().parse().ok().map(Duration::from_secs)
}

/// Texts of errors that hold a URL are not passed on: a redirect may hold a signature.
pub(super) fn error(error: &Error, location: &Location) -> Miss {
    match error {
        Error::Timeout(Timeout::Global) => Miss::Late,
        Error::Timeout(at) => Miss::again(format!("no answer from {location} ({at})"), None),
        Error::TooManyRedirects => refused(location, "redirects too often"),
        Error::RequireHttpsOnly(_) => refused(location, "redirects from https to http, which is not safe"),
        Error::BadUri(_) | Error::Http(_) | Error::RedirectFailed => {
            refused(location, "has or redirects to an unusable URL")
        }
        Error::Rustls(problem) => tls(location, problem),
        Error::Io(io) => match io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(problem) => tls(location, problem),
            None => Miss::again(format!("{io}; {location}"), None),
        },
        other => Miss::again(format!("{other}; {location}"), None),
    }
}

fn refused(location: &Location, what: &str) -> Miss {
    Miss::over(Reason::DownloadRefused, format!("{location} {what}"))
}

/// A wrong certificate stays wrong; anything else in TLS may be a broken connection.
fn tls(location: &Location, problem: &rustls::Error) -> Miss {
    match problem {
        rustls::Error::InvalidCertificate(_) => Miss::over(
            Reason::DownloadRefused,
            format!("TLS certificate not trusted: {problem}; {location}; add its CA to the installer's image"),
        ),
        rustls::Error::General(_) => {
            Miss::over(Reason::DownloadRefused, format!("TLS is not possible: {problem}; {location}"))
        }
        _ => Miss::again(format!("TLS: {problem}; {location}"), None),
    }
}

/// The wait after `tries` tries: doubles each time up to a cap, and is spread by `jitter` (0 to 1), so that a hundred
/// nodes do not come back at once. What the server asked for is the least.
pub(super) fn pause(limits: &Limits, tries: u32, asked: Option<Duration>, jitter: f64) -> Duration {
    let doubled = limits.backoff.saturating_mul(2_u32.saturating_pow(tries.saturating_sub(1)));
    let own = doubled.min(limits.backoff_cap);
    let spread = own.mul_f64(0.5 * jitter.clamp(0.0, 1.0));
    match asked {
        Some(asked) => asked + spread,
        None => own / 2 + spread,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location() -> Location {
        "https://user:secret@example.com/shim.tar.gz?token=secret".parse().unwrap()
    }

    fn judge(code: u16, retry_after: Option<&str>) -> Result<(), Miss> {
        status(StatusCode::from_u16(code).unwrap(), retry_after, &location())
    }

    #[test]
    fn busy_servers_are_asked_again_when_they_say() {
        for code in [429, 500, 502, 503, 504] {
            let Err(Miss::Again { failure, wait }) = judge(code, Some(" 7 ")) else { panic!("{code}") };
            assert_eq!(wait, Some(Duration::from_secs(7)));
            assert_eq!(failure.reason, Reason::DownloadFailed);
        }
        assert!(matches!(judge(503, Some("Wed, 21 Oct 2015 07:28:00 GMT")), Err(Miss::Again { wait: None, .. })));
    }

    #[test]
    fn a_clear_no_is_taken_as_one() {
        assert!(judge(200, None).is_ok());
        let cases = [
            (404, Reason::ArtifactNotFound),
            (410, Reason::ArtifactNotFound),
            (401, Reason::DownloadRefused),
            (403, Reason::DownloadRefused),
            (400, Reason::DownloadRefused),
            (206, Reason::DownloadRefused),
            (304, Reason::DownloadRefused),
        ];
        for (code, reason) in cases {
            let Err(Miss::Over(failure)) = judge(code, None) else { panic!("{code}") };
            assert_eq!(failure.reason, reason);
            assert!(failure.message.contains(&code.to_string()), "{}", failure.message);
        }
    }

    #[test]
    fn no_message_holds_a_secret() {
        let url = "http://user:secret@h/?secret".to_owned();
        for problem in [Error::BadUri(url.clone()), Error::RequireHttpsOnly(url), Error::TooManyRedirects] {
            let Miss::Over(failure) = error(&problem, &location()) else { panic!("{problem}") };
            assert!(!failure.message.contains("secret"), "{}", failure.message);
        }
        assert!(!format!("{:?}", judge(500, None)).contains("secret"));
    }

    #[test]
    fn only_the_global_time_out_is_the_end() {
        assert!(matches!(error(&Error::Timeout(Timeout::Global), &location()), Miss::Late));
        assert!(matches!(error(&Error::Timeout(Timeout::PerRead), &location()), Miss::Again { .. }));
        assert!(matches!(error(&Error::HostNotFound, &location()), Miss::Again { .. }));
    }

    #[test]
    fn pauses_double_up_to_the_cap() {
        let limits =
            Limits { backoff: Duration::from_secs(1), backoff_cap: Duration::from_secs(5), ..Limits::default() };
        let most: Vec<_> = (1..=5).map(|tries| pause(&limits, tries, None, 1.0).as_secs()).collect();
        assert_eq!(most, [1, 2, 4, 5, 5]);
        assert_eq!(pause(&limits, 3, None, 0.0), Duration::from_secs(2));
        assert_eq!(pause(&limits, u32::MAX, None, 1.0), Duration::from_secs(5));
    }

    #[test]
    fn a_server_is_never_asked_earlier_than_it_wants() {
        let asked = Duration::from_secs(30);
        for jitter in [0.0, 0.5, 1.0] {
            assert!(pause(&Limits::default(), 1, Some(asked), jitter) >= asked);
        }
    }
}
