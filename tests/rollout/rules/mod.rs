//! The rules of planner and status, one by one, on small Worlds.
mod brakes;
mod fixture;
mod results;
mod shims;
mod starts;
mod status;
