//! Which files change so that containerd has exactly a given set of our runtimes.
use super::{
    ConfigError, DROP_IN, block, imports,
    release::Style,
    runtime::{self, Others, Runtimes},
    schema::{self, Schema},
};

/// First line of a configuration file that we created because there was none.
const CREATED: &str = "# Created by kubectl-shim, which removes this file with its last shim.\n";

/// Before the runtimes that we only repeat.
const DEFAULTS: &str = "# containerd's own default, which any table of runtimes replaces:\n";

/// A file of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Absolute path.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// The configuration as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Absolute path of the file that the daemon starts from.
    pub root: String,
    /// What containerd loads: the root file, then what it imports, in order; empty where there is no root file.
    pub files: Vec<File>,
    /// Our drop-in where it exists without being imported, because somebody has written the root file anew.
    pub unread: Option<File>,
}

/// One file that has to change.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Change {
    /// Absolute path.
    pub path: String,
    /// What it holds now; absent: it does not exist.
    pub before: Option<String>,
    /// What it has to hold; absent: it has to go.
    pub after: Option<String>,
}

impl Config {
    /// Where our drop-in goes when the root file imports no directory.
    pub fn own_drop_in(&self) -> String {
        format!("{}/conf.d/{DROP_IN}", self.directory())
    }

    /// Our runtimes as they are written now, effective or not.
    pub fn ours(&self) -> Result<Runtimes, ConfigError> {
        let mut ours = Runtimes::new();
        for file in self.all() {
            let body = if is_drop_in(&file.path) { Some(file.text.clone()) } else { block::split(&file.text)?.body };
            ours.extend(runtime::read(&file.path, &body.unwrap_or_default())?);
        }
        Ok(ours)
    }

    /// The changes after which nothing of ours is left: every byte as it was before us.
    pub fn without_ours(&self) -> Result<Vec<Change>, ConfigError> {
        self.cleaned().map(|changes| self.needed(changes))
    }

    /// The changes after which containerd has exactly `runtimes` of ours. `defaults` are the runtimes that it has
    /// without us.
    pub fn edit(&self, style: Style, runtimes: &Runtimes, defaults: &Others) -> Result<Vec<Change>, ConfigError> {
        let mut changes = self.cleaned()?;
        if !runtimes.is_empty() {
            match style {
                Style::InPlace => add_block(&mut changes, runtimes, defaults)?,
                Style::DropIn => self.add_drop_in(&mut changes, runtimes)?,
            }
        }
        Ok(self.needed(changes))
    }

    fn needed(&self, mut changes: Vec<Change>) -> Vec<Change> {
        // What is not read yet is listed also if it stays as it is: it will be read.
        let unread = self.unread.as_ref().map(|file| &file.path);
        changes.retain(|change| change.before != change.after || Some(&change.path) == unread);
        changes
    }

    fn all(&self) -> impl Iterator<Item = &File> {
        self.files.iter().chain(&self.unread)
    }

    fn directory(&self) -> &str {
        self.root.rsplit_once('/').map_or("", |(directory, _)| directory)
    }

    fn own_import(&self) -> String {
        format!("{}/conf.d/{}", self.directory(), DROP_IN.replace(".toml", "*.toml"))
    }

    /// Every file, the root first, without anything of ours, whatever style wrote it: a node's containerd may have been
    /// upgraded from 1.7 to 2.x since.
    fn cleaned(&self) -> Result<Vec<Change>, ConfigError> {
        let mut changes = self.all().map(|file| self.clean(file)).collect::<Result<Vec<_>, _>>()?;
        if changes.first().is_none_or(|first| first.path != self.root) {
            changes.insert(0, Change { path: self.root.clone(), before: None, after: None });
        }
        Ok(changes)
    }

    fn clean(&self, file: &File) -> Result<Change, ConfigError> {
        let mut after = None;
        if !is_drop_in(&file.path) {
            let rest = block::split(&file.text)?.rest;
            let is_root = file.path == self.root;
            let rest = if is_root { imports::remove(&file.path, &rest, &self.own_import())? } else { rest };
            after = (!(is_root && is_created(&rest))).then_some(rest);
        }
        Ok(Change { path: file.path.clone(), before: Some(file.text.clone()), after })
    }

    fn add_drop_in(&self, changes: &mut Vec<Change>, runtimes: &Runtimes) -> Result<(), ConfigError> {
        let Some(root) = changes.first_mut() else { return Ok(()) };
        let text = root.after.take().unwrap_or_else(|| created(Style::DropIn));
        let schema = Schema::of(&self.root, &text, Style::DropIn)?;
        let imported = imports::entries(&self.root, &text)?;
        let directory = imported.iter().find_map(|entry| imports::directory(entry, self.directory()));
        root.after = Some(match directory {
            Some(_) => text,
            None => imports::add(&self.root, &text, &self.own_import())?,
        });
        let path = directory.map_or_else(|| self.own_drop_in(), |directory| format!("{directory}/{DROP_IN}"));
        let after = Some(fragment(schema, runtimes));
        match changes.iter_mut().find(|change| change.path == path) {
            Some(change) => change.after = after,
            None => changes.push(Change { path, before: None, after }),
        }
        Ok(())
    }
}

/// The block goes into the last file that configures the CRI plugin: on 1.x its table replaces all others. A table of
/// runtimes replaces the default one too, so where the file has none the block has to hold the default.
fn add_block(changes: &mut [Change], runtimes: &Runtimes, defaults: &Others) -> Result<(), ConfigError> {
    let mut supplier = 0;
    for (index, change) in changes.iter().enumerate() {
        if schema::configures_cri(&change.path, change.after.as_deref().unwrap_or_default())? {
            supplier = index;
        }
    }
    let Some(change) = changes.get_mut(supplier) else { return Ok(()) };
    let text = change.after.take().unwrap_or_else(|| created(Style::InPlace));
    let table = Schema::of(&change.path, &text, Style::InPlace)?.table;
    let file = schema::parse(&change.path, &text)?;
    let own = runtime::render(runtimes, table);
    change.after = Some(match runtime::runtimes_in(&file, table) {
        Some(_) => block::append(&text, &own),
        None => block::append(&text, &format!("{DEFAULTS}{}{own}", runtime::render_others(defaults, table))),
    });
    Ok(())
}

/// Whether the file is our drop-in.
pub fn is_drop_in(path: &str) -> bool {
    path.rsplit('/').next() == Some(DROP_IN)
}

/// A drop-in of another version than the root file's is refused, ignored, or makes others' settings vanish.
fn fragment(schema: Schema, runtimes: &Runtimes) -> String {
    let version = schema.version.map(|version| format!("version = {version}\n")).unwrap_or_default();
    format!(
        "# Written by kubectl-shim's installer; changes are lost.\n{version}{}",
        runtime::render(runtimes, schema.table)
    )
}

/// The smallest root file in the newest version that every release of the style reads. It changes nothing by itself.
pub(super) fn created(style: Style) -> String {
    let version = match style {
        Style::InPlace => 2,
        Style::DropIn => 3,
    };
    format!("{CREATED}version = {version}\n")
}

fn is_created(text: &str) -> bool {
    [Style::InPlace, Style::DropIn].iter().any(|style| text == created(*style))
}
