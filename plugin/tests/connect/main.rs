//! The connection layer against stubs: every row says what kubectl does, and ours has to do the same.

#![cfg(unix)]
// Helpers of tests may panic as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod api;
mod case;
mod exec;
mod flags;
mod kubeconfig;
mod pki;
mod proxies;
mod proxy;
mod requests;
mod tls;
