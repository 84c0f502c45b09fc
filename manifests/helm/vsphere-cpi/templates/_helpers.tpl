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

{{- define "cpi.secret" -}}
{{- dig "secret" "name" "" (include "cpi.config" . | fromJson) | default "vsphere-cloud-secret" -}}
{{- end -}}

{{- define "cpi.account" -}}
{{- dig "name" "" (.Values.serviceAccount | default dict) | default "cloud-controller-manager" -}}
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
