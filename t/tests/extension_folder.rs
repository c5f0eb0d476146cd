//! Tests an installation outside Postgres' own directories. From version 18 on, an administrator can name a directory
//! in extension_control_path and dynamic_library_path. pgcache works from that directory without changes, and from 19
//! on also through pg_upgrade.

use std::path::{Path, PathBuf};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::{Cluster, Shutdown};
use pgcache_tests::stage::Stage;
use postgres::Client;

/// A folder with the extension's files, which is removed when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the folder is ours");
    }
}

impl Folder {
    fn filled(name: &str) -> Folder {
        let mut session = Cluster::shared().connect("postgres");
        let mut of_server = |name: &str| {
            PathBuf::from(session.text(&format!(
                "SELECT setting FROM pg_config WHERE name = '{name}'"
            )))
        };
        let (libraries, share) = (of_server("PKGLIBDIR"), of_server("SHAREDIR"));
        let folder = Folder(Stage::current().run.join(name));
        let (extension, library) = (folder.0.join("extension"), folder.0.join("lib"));
        for part in [&extension, &library] {
            std::fs::create_dir_all(part).expect("PGCACHE_RUN is writable");
        }
        let copy = |from: &Path, to: &Path| {
            let name = from.file_name().expect("a file has a name");
            std::fs::copy(from, to.join(name)).expect("the stage has the file");
        };
        copy(&libraries.join("pgcache.so"), &library);
        for file in std::fs::read_dir(share.join("extension")).expect("the stage has extensions") {
            let file = file.expect("the folder can be read").path();
            if file
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("pgcache"))
            {
                copy(&file, &extension);
            }
        }
        folder
    }

    fn library(&self) -> PathBuf {
        self.0.join("lib/pgcache.so")
    }
}

/// Returns the files of pgcache's library that a session has loaded.
fn loaded(session: &mut Client) -> Vec<String> {
    let pid = session.text("SELECT pg_backend_pid()");
    let maps =
        std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("Linux lists what is mapped");
    let mut files: Vec<_> = maps
        .lines()
        .filter(|line| line.ends_with("/pgcache.so"))
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect();
    files.dedup();
    files
}

#[test]
fn an_extension_in_a_folder_of_its_own_is_created_loaded_once_and_upgraded() {
    if Stage::current().major() < 18 {
        return;
    }
    for (name, preload) in [("folder-preloaded", "pgcache"), ("folder-loaded", "")] {
        let folder = Folder::filled(name);
        let conf = [
            format!("extension_control_path = '{}:$system'", folder.0.display()),
            format!(
                "dynamic_library_path = '{}/lib:$libdir'",
                folder.0.display()
            ),
            format!("shared_preload_libraries = '{preload}'"),
        ];
        let conf = conf.each_ref().map(String::as_str);
        let ours = [folder.library().display().to_string()];
        let old = Cluster::own(&conf);
        let mut session = old.connect("postgres");
        session.run("CREATE EXTENSION pgcache");
        session.run("SELECT cache_create('c', storage => 'logged'), cache_set('k', 'v')");
        session.run("SELECT cache_set('k', 'v', cache => 'c')");
        session.run("LOAD 'pgcache'");
        assert_eq!(session.text("SELECT cache_get('k', 'c')"), "v");
        assert_eq!(loaded(&mut session), ours, "{name}");
        drop(session);
        old.down(Shutdown::Fast);
        // pg_upgrade 18 looks for the library only under its literal name.
        if Stage::current().major() < 19 {
            continue;
        }
        let new = old.upgraded(&old.stage, &[], &conf);
        new.up();
        let mut session = new.connect("postgres");
        assert_eq!(session.text("SELECT cache_get('k', 'c')"), "v");
        session.run("SELECT cache_set('k', 'w', cache => 'c')");
        assert_eq!(session.text("SELECT cache_get('k', 'c')"), "w");
        assert_eq!(loaded(&mut session), ours, "{name}, upgraded");
        new.down(Shutdown::Fast);
    }
}
