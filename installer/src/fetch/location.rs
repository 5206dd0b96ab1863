//! Where an artifact is: a URL that never shows its credentials.
use std::{fmt, str::FromStr};

use shim_core::report::{Failure, Reason};
use ureq::http::Uri;

/// An http or https URL. Shown without user, password and query, which hold secrets in signed URLs.
#[derive(Debug, Clone)]
pub(super) struct Location {
    uri: Uri,
    scheme: Scheme,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl Location {
    /// The whole URL, with its secrets; for the request only.
    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(super) fn scheme(&self) -> Scheme {
        self.scheme
    }
}

impl FromStr for Location {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        // The text is in no message: it may hold a password.
        let uri: Uri = text.trim().parse().map_err(|_| unusable("is not a valid URL"))?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(other) => return Err(unusable(&format!("begins with {other}:"))),
            None => return Err(unusable("has no scheme")),
        };
        Ok(Self { uri, scheme })
    }
}

fn unusable(what: &str) -> Failure {
    super::failure(Reason::DownloadRefused, format!("the location {what}; an http or https URL is needed"))
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{host}{}", self.uri.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_shows_neither_user_nor_query() {
        let location: Location = "https://me:secret@example.com:8443/a/b.tar.gz?token=secret".parse().unwrap();
        assert_eq!(location.to_string(), "https://example.com:8443/a/b.tar.gz");
        assert_eq!(location.scheme(), Scheme::Https);
        assert!(location.uri().to_string().contains("me:secret@"));
    }

    #[test]
    fn only_http_and_https_are_locations_and_a_refusal_keeps_the_secret() {
        for illegal in ["oci://u:secret@h/x", "ftp://secret/x", "/secret", "secret", "http://u:secret@h /x", ""] {
            let failure = illegal.parse::<Location>().unwrap_err();
            assert_eq!(failure.reason, Reason::DownloadRefused, "{illegal}");
            assert!(!failure.message.contains("secret"), "{}", failure.message);
        }
    }
}
