{{/* Name of objects, and value of the label that selects Pods. */}}
{{- define "cpi.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Text of a value, by its path. Empty if it is missing: values of an older release can be reused.
Argument: root, path. */}}
{{- define "cpi.value" -}}
{{- $at := .root.Values -}}
{{- range splitList "." .path -}}
{{- if kindIs "map" $at -}}
{{- $at = get $at . -}}
{{- else -}}
{{- $at = "" -}}
{{- end -}}
{{- end -}}
{{- if not (kindIs "invalid" $at) -}}
{{- include "cpi.text" $at -}}
{{- end -}}
{{- end -}}

{{/* Text of the new value, otherwise of the old one. Both must not differ. An old value that is the default of upstream's chart
is treated as unset. Argument: root, new, old, default. */}}
{{- define "cpi.either" -}}
{{- $new := include "cpi.value" (dict "root" .root "path" .new) -}}
{{- $old := include "cpi.value" (dict "root" .root "path" .old) -}}
{{- if and $new $old (ne $new $old) (ne $old (.default | default "")) -}}
{{- fail (printf "%s and %s are both set, and differ: remove %s" .new .old .old) -}}
{{- end -}}
{{- $new | default $old -}}
{{- end -}}

{{/* Text of a value for a flag: whole numbers without an exponent, lists with commas. */}}
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

{{/* The chart that the values are from: "upstream", "0.1.0" or "2.0.0". "helm upgrade --reuse-values" gives the values of the
release and none of this chart, so the keys that only this chart has are missing. */}}
{{- define "cpi.origin" -}}
{{- if or (not .Release.IsUpgrade) (and (hasKey .Values "commonLabels") (hasKey .Values "kind") (hasKey .Values "monitoring")) -}}
2.0.0
{{- else if and (hasKey .Values "imagePullSecrets") (hasKey .Values "k8sServiceHost") (hasKey .Values "k8sServicePort") -}}
0.1.0
{{- else -}}
upstream
{{- end -}}
{{- end -}}

{{- define "cpi.account" -}}
{{- dig "name" "" (.Values.serviceAccount | default dict) | default "cloud-controller-manager" -}}
{{- end -}}

{{/* The kind of the workload. */}}
{{- define "cpi.kind" -}}
{{- .Values.kind | default "DaemonSet" -}}
{{- end -}}

{{/* Labels of the Pods. No selector has the labels of app.kubernetes.io. Argument: root, part. */}}
{{- define "cpi.podLabels" -}}
{{- $labels := dict "app.kubernetes.io/name" "vsphere-cloud-controller-manager" -}}
{{- $_ := set $labels "app.kubernetes.io/instance" .root.Release.Name -}}
{{- $_ := set $labels "app.kubernetes.io/component" "cloud-controller-manager" -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $labels "app" (include "cpi.name" .root) -}}
{{- $_ := set $labels "component" "cloud-controller-manager" -}}
{{- $_ := set $labels "vsphere-cpi-infra" .part -}}
{{- $own := .root.Values.commonLabels | default dict -}}
{{- include "cpi.checkLabels" (dict "labels" $own "path" "commonLabels" "fixed" (list "app" "component" "tier" "release")) -}}
{{- mergeOverwrite $labels $own | toYaml -}}
{{- end -}}

{{/* Refuses labels that the chart sets. Argument: labels, path, and fixed: further names. */}}
{{- define "cpi.checkLabels" -}}
{{- $fixed := concat .fixed (list "vsphere-cpi-infra" "helm.sh/chart") -}}
{{- range list "name" "instance" "component" "version" "managed-by" -}}
{{- $fixed = append $fixed (printf "app.kubernetes.io/%s" .) -}}
{{- end -}}
{{- range $key, $value := .labels -}}
{{- if has $key $fixed -}}
{{- fail (printf "%s has the label %s, which the chart sets: remove it from %s" $.path $key $.path) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of every object; the value of vsphere-cpi-infra is that of upstream's chart. The versions are not on the Pods, which
would restart with each version of the chart. Argument: root, part. */}}
{{- define "cpi.labels" -}}
{{- $labels := include "cpi.podLabels" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/version" (.root.Chart.AppVersion | replace "+" "_") -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_") -}}
{{- toYaml $labels -}}
{{- end -}}

{{- define "cpi.subject" -}}
- kind: ServiceAccount
  name: {{ include "cpi.account" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}
