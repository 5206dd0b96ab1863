//! The files that containerd's own binary reads to judge an edit, in a directory that the daemon never looks into.
use super::{
    ConfigError,
    edit::{Change, Config, File, created},
    imports,
    release::Style,
};

impl Config {
    /// Files for `directory` that mean to containerd what the configuration will mean after `changes`. The first is the
    /// root; its imports are spelled out, so that globs see neither the live drop-in nor the candidate.
    pub fn check_files(&self, style: Style, changes: &[Change], directory: &str) -> Result<Vec<File>, ConfigError> {
        let mut files = Vec::new();
        let mut paths = Vec::new();
        for (path, text) in self.imported_after(changes) {
            if change_of(changes, &path).is_some() {
                let copy = format!("{directory}/{}.check", files.len() + 1);
                paths.push(copy.clone());
                files.push(File { path: copy, text });
            } else {
                paths.push(path);
            }
        }
        let root = self.root_after(changes).unwrap_or_else(|| created(style));
        let text = imports::replace(&self.root, &root, &paths)?;
        files.insert(0, File { path: format!("{directory}/root.check"), text });
        Ok(files)
    }

    fn root_after(&self, changes: &[Change]) -> Option<String> {
        match change_of(changes, &self.root) {
            Some(change) => change.after.clone(),
            None => self.files.first().map(|file| file.text.clone()),
        }
    }

    /// Path and text of every file that the root will import. An edit adds at most our drop-in, which is imported.
    fn imported_after(&self, changes: &[Change]) -> Vec<(String, String)> {
        let mut imported = Vec::new();
        for file in self.files.iter().skip(1) {
            let after =
                change_of(changes, &file.path).map_or_else(|| Some(file.text.clone()), |change| change.after.clone());
            imported.extend(after.map(|text| (file.path.clone(), text)));
        }
        for change in changes {
            let known = change.path == self.root || self.files.iter().any(|file| file.path == change.path);
            if !known {
                imported.extend(change.after.clone().map(|text| (change.path.clone(), text)));
            }
        }
        imported
    }
}

fn change_of<'a>(changes: &'a [Change], path: &str) -> Option<&'a Change> {
    changes.iter().find(|change| change.path == path)
}
