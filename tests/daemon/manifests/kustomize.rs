//! The tree below `manifests/`, built as with `kubectl apply -k`.

use std::path::Path;

use serde_json::Value;
use support::command::output;
use support::components::Component;
use support::{ApiServer, copy_folder};
use tokio::process::Command;
use tokio::sync::OnceCell;

/// A folder for `kubectl apply -k`.
pub struct Form {
    /// Path of the folder below `manifests/`.
    pub name: String,
    /// Output of `kubectl kustomize`.
    pub manifest: String,
    /// Objects of the manifest.
    pub objects: Vec<Value>,
}

/// Returns all forms. They are built once.
pub async fn forms() -> &'static [Form] {
    static FORMS: OnceCell<Vec<Form>> = OnceCell::const_new();
    FORMS
        .get_or_init(async || {
            let tree = Tree::copy();
            let mut forms = Vec::new();
            for name in tree.forms() {
                let manifest = tree.built(&name).await;
                let objects = objects(&manifest).await;
                forms.push(Form { name, manifest, objects });
            }
            assert!(forms.len() > 12, "{:?}", tree.forms());
            forms
        })
        .await
}

/// Returns the form with this name.
pub async fn form(name: &str) -> &'static Form {
    forms().await.iter().find(|form| form.name == name).unwrap_or_else(|| panic!("{name} cannot be applied"))
}

/// A copy of `manifests/`, with a folder for each combination of a component and a workload, for each overlay as a
/// Deployment, and for `monitoring` with its components.
pub struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    /// Copies `manifests/`.
    pub fn copy() -> Self {
        let tree = Self { folder: tempfile::tempdir().unwrap() };
        copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests"), tree.folder.path());
        for component in tree.folders_in("components") {
            for workload in ["base", "deployment"] {
                if (workload, component.as_str()) != ("deployment", "deployment") {
                    tree.put(&format!("{workload}-with-{component}"), workload, &[&format!("components/{component}")]);
                }
            }
        }
        for overlay in tree.folders_in("overlays") {
            let (name, resource) = (format!("{overlay}-with-deployment"), format!("overlays/{overlay}"));
            tree.put(&name, &resource, &["components/deployment"]);
        }
        let (pods, verified) = ("monitoring/pod-monitor", "monitoring/verified");
        for (name, components) in [
            ("monitoring-with-pod-monitor", &[pods][..]),
            ("monitoring-with-verified", &[verified]),
            ("monitoring-with-pod-monitor-and-verified", &[pods, verified]),
        ] {
            tree.put(name, "monitoring", components);
        }
        tree
    }

    fn folders_in(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Creates a folder with a kustomization of this resource with these components.
    fn put(&self, name: &str, resource: &str, components: &[&str]) {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let components: Vec<String> = components.iter().map(|component| format!("../{component}")).collect();
        let text = format!(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n\
             resources: [../{resource}]\ncomponents: [{}]\n",
            components.join(", ")
        );
        std::fs::write(folder.join("kustomization.yaml"), text).unwrap();
    }

    /// Returns the folders for `kubectl apply -k`, by their paths below `manifests/`.
    fn forms(&self) -> Vec<String> {
        let files = self.files().into_iter().filter(|file| !file.starts_with("helm/"));
        let folders = files.filter_map(|file| {
            let is_form = self.read(&file).contains("\nkind: Kustomization\n");
            is_form.then(|| file.strip_suffix("/kustomization.yaml").map(str::to_owned)).flatten()
        });
        folders.collect()
    }

    /// Returns the files of the tree, sorted.
    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        below(self.folder.path(), self.folder.path(), &mut files);
        files.sort();
        files
    }

    /// Returns the files that kustomizations list as resources.
    pub fn named(&self) -> Vec<String> {
        let mut named = Vec::new();
        for file in self.files().iter().filter(|file| file.ends_with("/kustomization.yaml")) {
            let folder = file.strip_suffix("kustomization.yaml").unwrap();
            let text = self.read(file);
            let resources =
                text.lines().filter_map(|line| line.strip_prefix("- ")).filter(|line| line.ends_with(".yaml"));
            named.extend(resources.map(|resource| format!("{folder}{resource}")));
        }
        named
    }

    /// Returns the text of a file.
    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap()
    }

    /// Returns the output of `kubectl kustomize` for a new folder with this kustomization.
    pub async fn built_with(&self, folder: &str, kustomization: &str) -> String {
        std::fs::create_dir_all(self.folder.path().join(folder)).unwrap();
        std::fs::write(self.folder.path().join(folder).join("kustomization.yaml"), kustomization).unwrap();
        self.built(folder).await
    }

    /// Returns the output of `kubectl kustomize` for this folder.
    async fn built(&self, form: &str) -> String {
        let folder = self.folder.path().join(form);
        let built = kubectl(None, &["kustomize", folder.to_str().unwrap()], "").await;
        built.unwrap_or_else(|error| panic!("{form}: {error}"))
    }
}

fn below(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => below(root, &path, files),
            false => files.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()),
        }
    }
}

/// Runs kubectl, as an administrator of this server if one is given. Returns its output or its error.
pub async fn kubectl(server: Option<&ApiServer>, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut flags: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    if let Some(server) = server {
        flags.push(format!("--kubeconfig={}", server.kubeconfig().display()));
        flags.push(format!("--cache-dir={}", server.folder().join("kubectl").display()));
    }
    piped(&Component::Kubectl.path(), &flags, input).await
}

/// Parses the documents of a YAML text as the API server does. A duplicate key is a mistake.
pub async fn objects(manifest: &str) -> Vec<Value> {
    let told = piped(&Component::Chart.path(), &["objects".to_owned()], manifest).await;
    let objects: Vec<Value> = serde_json::from_str(&told.unwrap_or_else(|error| panic!("{error}"))).unwrap();
    let is_list = |object: &Value| object["kind"] == "List";
    objects
        .into_iter()
        .flat_map(|object| if is_list(&object) { object["items"].as_array().unwrap().clone() } else { vec![object] })
        .collect()
}

/// Returns the kubelet's interpretation of this image reference, or its error (`InvalidImageName`).
pub async fn parsed(image: &str) -> Result<String, String> {
    let printed = piped(&Component::Chart.path(), &["image".to_owned(), image.to_owned()], "").await?;
    Ok(serde_json::from_str(&printed).unwrap())
}

/// Runs a program with this input. Returns its output or its error.
pub async fn piped(program: &Path, arguments: &[String], input: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = output(command, input).await;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
