//! The screens: whole clusters built in code, the text that people see as golden files.
//!
//! A golden file that has to change: run with `INSTA_UPDATE=always` and read the diff.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod fixture;
mod history;
mod screens;
mod watching;
