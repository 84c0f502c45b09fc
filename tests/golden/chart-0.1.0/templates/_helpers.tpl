{{/* The name of objects, and of the label that selects pods. */}}
{{- define "cpi.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* config, with global.config over it, as JSON. All keys may be missing: values of an older release may be reused. */}}
{{- define "cpi.config" -}}
{{- $config := deepCopy (.Values.config | default dict) -}}
{{- if .Values.global -}}
{{- $config = mergeOverwrite $config (deepCopy (.Values.global.config | default dict)) -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* The Secret that this chart renders, and that the vsphere.conf it renders names. */}}
{{- define "cpi.secret" -}}
{{- dig "secret" "name" "" (include "cpi.config" . | fromJson) | default "vsphere-cloud-secret" -}}
{{- end -}}

{{/* The Secrets that may be read, as JSON: {"all": bool, "named": [{name, namespace}]}. Without config.enabled the
vsphere.conf is the user's own, and nobody here knows which Secrets it names: they have to be named. Only where the values
are those of upstream's chart (helm upgrade --reuse-values gives none of ours) all of the namespace may be read, as upstream's
chart allows: refusing them would leave a running cluster without credentials. With rbac.create: false the chart makes no Role. */}}
{{- define "cpi.secrets" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- $rbac := .Values.rbac | default dict -}}
{{- $name := dig "secret" "name" "" $config -}}
{{- $named := list -}}
{{- if or $config.enabled $name -}}
{{- $named = list (dict "name" (include "cpi.secret" .) "namespace" .Release.Namespace) -}}
{{- end -}}
{{- range dig "secrets" list $rbac | default list -}}
{{- $named = append $named (dict "name" .name "namespace" (.namespace | default $.Release.Namespace)) -}}
{{- end -}}
{{- $isReused := not (or (hasKey $rbac "secrets") (hasKey $rbac "nodeDeletion")) -}}
{{- $creates := dig "create" true $rbac -}}
{{- $all := and $creates (not $config.enabled) $isReused (has $name (list "" "vsphere-cloud-secret")) -}}
{{- if and (not $all) (empty $named) $creates -}}
{{- fail "config.enabled is false, so vsphere.conf is your own, and the Secrets that it names have to be named here, because the program may read no others: set config.secret.name (a Secret in the namespace of the release) or rbac.secrets ([{name: NAME, namespace: NAMESPACE}]). If vsphere.conf names no Secret, set config.secret.name to the name of one that does not exist" -}}
{{- end -}}
{{- toJson (dict "all" $all "named" $named) -}}
{{- end -}}

{{/* Whether the certificate of vCenter is not checked, as JSON: with config.insecureFlag, or where the values are reused ones that do
not know this key (helm upgrade --reuse-values), as those of the Go program's chart, which never checks it. */}}
{{- define "cpi.unchecked" -}}
{{- $config := include "cpi.config" . | fromJson -}}
{{- and (not $config.thumbprint) (not $config.caFile) (or (and .Release.IsUpgrade (not (hasKey $config "insecureFlag"))) (dig "insecureFlag" false $config | default false)) | toJson -}}
{{- end -}}

{{- define "cpi.account" -}}
{{- dig "name" "" (.Values.serviceAccount | default dict) | default "cloud-controller-manager" -}}
{{- end -}}

{{/* The image reference. A tag beside a digest is for the reader: the digest decides. */}}
{{- define "cpi.image" -}}
{{- $set := .Values.daemonset | default dict -}}
{{- $image := $set.image | default "" -}}
{{- if not $image -}}
{{- fail "daemonset.image is not set: set it to the repository of the image, such as registry.example.com/vsphere-cloud-controller-manager; with daemonset.tag or daemonset.digest, and imagePullSecrets for a private registry. How to get an image: docs/install/image.md" -}}
{{- end -}}
{{- /* A release of the Go program's chart whose values are reused. Its image does not answer /livez. */ -}}
{{- if or (hasSuffix "cloud-pv-vsphere/cloud-provider-vsphere" $image) (hasSuffix "cloud-provider-vsphere/cpi/release/manager" $image) -}}
{{- fail (printf "daemonset.image is %s, the image of the Go program (cloud-provider-vsphere): set daemonset.image to the repository of vsphere-cloud-controller-manager, and daemonset.tag to its version. How to get an image: docs/install/image.md" $image) -}}
{{- end -}}
{{- if and $set.digest (contains "@" ($set.tag | default "")) -}}
{{- fail "daemonset.tag and daemonset.digest both name a digest: leave it out of the tag" -}}
{{- end -}}
{{- if $set.digest -}}
{{- printf "%s%s@%s" $image (empty $set.tag | ternary "" (printf ":%s" $set.tag)) $set.digest -}}
{{- else -}}
{{- printf "%s:%s" $image ($set.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Variables of the container, as a list in JSON. */}}
{{- define "cpi.env" -}}
{{- $env := dig "env" list (.Values.daemonset | default dict) | default list -}}
{{- $port := .Values.k8sServicePort | default 6443 | toString -}}
{{- if .Values.k8sServiceHost -}}
{{- range $env -}}
{{- if has .name (list "KUBERNETES_SERVICE_HOST" "KUBERNETES_SERVICE_PORT") -}}
{{- fail (printf "%s is in daemonset.env, and k8sServiceHost is set: remove one of them" .name) -}}
{{- end -}}
{{- end -}}
{{- $host := dict "name" "KUBERNETES_SERVICE_HOST" "value" .Values.k8sServiceHost -}}
{{- $env = concat (list $host (dict "name" "KUBERNETES_SERVICE_PORT" "value" $port)) $env -}}
{{- else if ne $port "6443" -}}
{{- fail "k8sServicePort is set without k8sServiceHost: set both" -}}
{{- end -}}
{{- toJson $env -}}
{{- end -}}

{{/* Labels of every object; the last one is what the Go program's chart calls its part. */}}
{{- define "cpi.labels" -}}
app: {{ include "cpi.name" .root | quote }}
component: cloud-controller-manager
vsphere-cpi-infra: {{ .part }}
{{- end -}}

{{- define "cpi.subject" -}}
- kind: ServiceAccount
  name: {{ include "cpi.account" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{/* A value of a flag: whole numbers without an exponent, lists with commas. */}}
{{- define "cpi.text" -}}
{{- if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . }}{{ $items = append $items (include "cpi.text" .) }}{{ end -}}
{{- join "," $items -}}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}
