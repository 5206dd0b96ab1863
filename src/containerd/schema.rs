//! Which version of the configuration a file is written in, and which CRI table it uses.
use super::{ConfigError, release::Style};

/// The table that holds the CRI plugin's runtimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CriTable {
    /// Version 1, also files without a version.
    Cri,
    /// Version 2.
    GrpcV1,
    /// Version 3 and later.
    CriV1,
}

impl CriTable {
    /// Every table, newest first.
    pub const ALL: [Self; 3] = [Self::CriV1, Self::GrpcV1, Self::Cri];

    /// The key under `plugins`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Cri => "cri",
            Self::GrpcV1 => "io.containerd.grpc.v1.cri",
            Self::CriV1 => "io.containerd.cri.v1.runtime",
        }
    }
}

/// How a file is written, and so how anything that is added to it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// The file's `version`; absent means 1 to containerd.
    pub version: Option<i64>,
    /// The table that its runtimes are in.
    pub table: CriTable,
}

impl Schema {
    /// Reads how something must be written that is added to the file `path`.
    ///
    /// The table follows the version, but for two layouts in the wild. AKS writes `version = 2` and version 3's table,
    /// and only that mix works there with every 2.x. A file without a version that says nothing of CRI, like the one of
    /// Docker's package, is of no version: there 2.0 to 2.2 ignore the old tables.
    pub fn of(path: &str, text: &str, style: Style) -> Result<Self, ConfigError> {
        let file = parse(path, text)?;
        let version = match file.get("version") {
            None => None,
            Some(toml::Value::Integer(version)) => Some(*version),
            Some(_) => return Err(ConfigError::WrongType { key: "version", expected: "a whole number" }),
        };
        let silent = CriTable::ALL.iter().all(|table| plugin(&file, *table).is_none());
        let table = match version {
            None | Some(..2) if style == Style::DropIn && silent => CriTable::CriV1,
            None | Some(..2) => CriTable::Cri,
            Some(2) if !has(&file, CriTable::GrpcV1) && has(&file, CriTable::CriV1) => CriTable::CriV1,
            Some(2) => CriTable::GrpcV1,
            Some(_) => CriTable::CriV1,
        };
        Ok(Self { version, table })
    }
}

/// Whether the file configures the CRI plugin in any version's way.
pub fn configures_cri(path: &str, text: &str) -> Result<bool, ConfigError> {
    let file = parse(path, text)?;
    Ok(CriTable::ALL.iter().any(|table| plugin(&file, *table).is_some()))
}

/// Parses `text`, with the file's name in the error.
pub fn parse(path: &str, text: &str) -> Result<toml::Table, ConfigError> {
    text.parse()
        .map_err(|error: toml::de::Error| ConfigError::NotToml { path: path.to_owned(), message: error.to_string() })
}

/// Version 3 keeps the streaming server under version 2's key, so the key alone proves nothing.
fn has(file: &toml::Table, table: CriTable) -> bool {
    plugin(file, table).is_some_and(|plugin| plugin.get("containerd").is_some())
}

fn plugin(file: &toml::Table, table: CriTable) -> Option<&toml::Value> {
    file.get("plugins")?.get(table.key())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &str, style: Style) -> (Option<i64>, CriTable) {
        let schema = Schema::of("config.toml", text, style).unwrap();
        (schema.version, schema.table)
    }

    #[test]
    fn the_table_follows_the_version() {
        let drop_in = |text| schema(text, Style::DropIn);
        assert_eq!(drop_in("version=2"), (Some(2), CriTable::GrpcV1));
        assert_eq!(drop_in("version  =  3"), (Some(3), CriTable::CriV1));
        assert_eq!(drop_in("version = 4"), (Some(4), CriTable::CriV1));
        assert_eq!(drop_in("# version = 3\nversion = 2"), (Some(2), CriTable::GrpcV1));
        assert_eq!(schema("version = 1", Style::InPlace), (Some(1), CriTable::Cri));
    }

    #[test]
    fn a_file_without_a_version_is_old_only_if_it_has_old_tables() {
        let old = "[plugins.cri]\nsandbox_image = 'x'";
        assert_eq!(schema(old, Style::DropIn), (None, CriTable::Cri));
        assert_eq!(schema("disabled_plugins = []", Style::DropIn), (None, CriTable::CriV1));
        assert_eq!(schema("disabled_plugins = []", Style::InPlace), (None, CriTable::Cri));
    }

    #[test]
    fn version_2_with_the_table_of_version_3_keeps_both() {
        let aks = "version = 2\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'runc'";
        assert_eq!(schema(aks, Style::DropIn), (Some(2), CriTable::CriV1));
        let streaming = "version = 3\n[plugins.'io.containerd.grpc.v1.cri']\nstream_server_port = '0'";
        assert_eq!(schema(streaming, Style::DropIn), (Some(3), CriTable::CriV1));
    }

    #[test]
    fn what_is_no_configuration_is_refused_with_the_file_s_name() {
        assert!(Schema::of("/etc/x", "{{ template }}", Style::DropIn).unwrap_err().to_string().contains("/etc/x"));
        assert!(Schema::of("/etc/x", "version = 'two'", Style::DropIn).is_err());
    }
}
