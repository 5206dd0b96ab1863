//! One kind of Kubernetes objects with its history: what a cache that lags behind shows is an older part of it.
use std::{collections::BTreeMap, rc::Rc};

use jiff::Timestamp;

/// What became of an object, each with the number of the write.
type Versions<T> = Vec<(usize, Option<Rc<T>>)>;

/// Objects by name, in all their versions.
#[derive(Debug, Clone)]
pub struct Log<K, T> {
    versions: BTreeMap<K, Versions<T>>,
    /// When each version was written.
    times: Vec<Timestamp>,
}

impl<K: Ord + Clone, T: Clone> Log<K, T> {
    pub fn new() -> Self {
        Self { versions: BTreeMap::new(), times: Vec::new() }
    }

    /// Number of versions so far.
    pub fn head(&self) -> usize {
        self.times.len()
    }

    /// Number of versions that had been written by `time`.
    pub fn head_at(&self, time: Timestamp) -> usize {
        self.times.partition_point(|written| *written <= time)
    }

    pub fn get(&self, key: &K) -> Option<&T> {
        self.versions.get(key)?.last()?.1.as_deref()
    }

    pub fn keys(&self) -> Vec<K> {
        self.versions.keys().filter(|key| self.get(key).is_some()).cloned().collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.versions.values().filter_map(|versions| versions.last()?.1.as_deref())
    }

    /// The objects as they were after `seen` versions.
    pub fn at(&self, seen: usize) -> impl Iterator<Item = &T> {
        self.versions.values().filter_map(move |versions| {
            let count = versions.partition_point(|(number, _)| *number <= seen);
            versions[..count].last()?.1.as_deref()
        })
    }

    pub fn set(&mut self, now: Timestamp, key: K, value: Option<T>) {
        self.times.push(now);
        let number = self.times.len();
        self.versions.entry(key).or_default().push((number, value.map(Rc::new)));
    }

    pub fn change(&mut self, now: Timestamp, key: &K, change: impl FnOnce(&mut T)) {
        if let Some(mut value) = self.get(key).cloned() {
            change(&mut value);
            self.set(now, key.clone(), Some(value));
        }
    }
}
