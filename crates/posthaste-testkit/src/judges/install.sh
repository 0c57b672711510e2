# Sourced by `test`: brings the programs and schemas that judge what is in packaging/.

KUBECONFORM_VERSION=v0.8.0
# What is in the folder; another line brings it anew.
KUBERNETES_TOOLS=(
  helm=helm.sh/helm/v3/cmd/helm@v3.22.0
  kubeconform=github.com/yannh/kubeconform/cmd/kubeconform@$KUBECONFORM_VERSION
  kustomize=sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
  compose-spec=github.com/compose-spec/compose-go/v2/cmd@v2.16.2
)
# The package has the schemas of Kubernetes' own kinds for many versions: kept are those of the
# oldest that the chart allows and of the newest. The operator defines two kinds of its own.
KUBERNETES_SCHEMAS=kubernetes-validate==1.37.0
KUBERNETES_VERSIONS=(1.27.0 1.37.0)
PROMETHEUS_OPERATOR=github.com/prometheus-operator/prometheus-operator@v0.85.0

install_kubernetes_tools() {
  local wanted work entry
  wanted="${KUBERNETES_TOOLS[*]} $KUBERNETES_SCHEMAS ${KUBERNETES_VERSIONS[*]} $PROMETHEUS_OPERATOR"
  if [ "$(cat "$cache/kubernetes-tools/contents" 2>/dev/null)" = "$wanted" ]; then
    echo "the tools for charts and manifests are in the cache"
    return
  fi
  command -v go >/dev/null ||
    fail "Go is missing, which builds helm and others: install Go 1.26 or later from" \
      "https://go.dev/dl, then run ./test again."
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  for entry in "${KUBERNETES_TOOLS[@]}"; do
    echo "building ${entry#*=}"
    build_go_tool "${entry%%=*}" "${entry#*=}" "$work" >"$work/log" 2>&1 ||
      { cat "$work/log" >&2; rm -rf "$work"; fail "Go could not build ${entry#*=}."; }
  done
  echo "downloading $KUBERNETES_SCHEMAS and $PROMETHEUS_OPERATOR"
  (download_schemas "$work") >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "The schemas of Kubernetes could not be had."; }
  echo "$wanted" >"$work/contents"
  rm -rf "$work/log" "$work/build" "$cache/kubernetes-tools"
  mv "$work" "$cache/kubernetes-tools"
}

# A command is installed under the name of its folder, which may be `cmd`.
build_go_tool() {
  local name=$1 package=$2 work=$3
  mkdir -p "$work/bin" "$work/build"
  GOBIN="$work/build" GOFLAGS='' CGO_ENABLED=0 go install -trimpath -ldflags='-s -w' "$package" &&
    mv "$work/build"/* "$work/bin/$name"
}

download_schemas() {
  local work=$1 python site operator converter version
  python="$work/build/python"
  python3 -m venv "$python" &&
    "$python/bin/python" -m pip install --quiet "$KUBERNETES_SCHEMAS" &&
    site=$("$python/bin/python" -c 'import kubernetes_validate as k; print(k.__path__[0])') ||
    return
  for version in "${KUBERNETES_VERSIONS[@]}"; do
    mkdir -p "$work/schemas/v$version" &&
      cp "$site/kubernetes-json-schema/v$version-local-strict"/*.json "$work/schemas/v$version" ||
      return
  done
  # The package resolves references by these ids itself; kubeconform would ask the network for them,
  # and finds a file beside the other.
  find "$work/schemas" -name '*.json' -exec sed -i \
    -e 's|"$id": "https://kubernetes.io/|"x-id": "https://kubernetes.io/|' \
    -e 's|"/api/_definitions|"_definitions|' {} + &&
    operator=$(module_folder "$PROMETHEUS_OPERATOR") &&
    converter=$(module_folder "github.com/yannh/kubeconform@$KUBECONFORM_VERSION") &&
    mkdir -p "$work/schemas/custom" &&
    cd "$work/schemas/custom" &&
    "$python/bin/python" "$converter/scripts/openapi2jsonschema.py" \
      "$operator/example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml" \
      "$operator/example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"
}

# Where Go keeps a module's files.
module_folder() {
  (cd / && go mod download -json "$1") | sed -n 's/^.*"Dir": "\(.*\)",*$/\1/p'
}

install_kubernetes_tools
