//! `fetch` from its outside: a task and an HTTP server in, files out.
#[cfg(test)]
mod fetch_archive;
#[cfg(test)]
mod fetch_http;
#[cfg(test)]
mod fetch_process;
#[cfg(test)]
mod fetch_tls;
#[cfg(test)]
mod pack;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod stub;
