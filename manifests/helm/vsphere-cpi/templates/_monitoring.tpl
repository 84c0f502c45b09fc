{{/* Metadata of an object for monitoring, as JSON. The labels of the chart take precedence. Argument: root, name, labels. */}}
{{- define "cpi.monitoringMetadata" -}}
{{- $labels := include "cpi.labels" (dict "root" .root "part" "monitoring") | fromYaml -}}
{{- range $key, $value := .labels | default dict -}}
{{- if not (hasKey $labels $key) -}}
{{- $_ := set $labels $key $value -}}
{{- end -}}
{{- end -}}
{{- dict "name" .name "namespace" .root.Release.Namespace "labels" $labels | toJson -}}
{{- end -}}
