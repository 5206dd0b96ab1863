//! The rules of planner and status, one by one, on small Worlds.
mod fixture;
mod results;
mod shims;
mod starts;
mod status;
