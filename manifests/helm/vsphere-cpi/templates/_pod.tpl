{{/* The specification of the Pod, for the workload and for the test of the release. */}}
{{- define "cpi.pod" -}}
{{- $set := .Values.daemonset | default dict -}}
{{- $dnsConfig := .Values.dnsConfig | default dict -}}
{{- if and (eq ($set.dnsPolicy | default "") "None") (not $dnsConfig) -}}
{{- fail "daemonset.dnsPolicy is None, and dnsConfig is not set: set dnsConfig.nameservers" -}}
{{- end -}}
serviceAccountName: {{ include "cpi.account" . | quote }}
priorityClassName: {{ .Values.priorityClassName | default "system-node-critical" | quote }}
hostNetwork: true
dnsPolicy: {{ $set.dnsPolicy | default "ClusterFirst" }}
{{- with $dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
# Otherwise a Service with the name vsphere-vcenter-… would set variables that define a vCenter.
enableServiceLinks: false
{{- with include "cpi.pullSecrets" . | fromJsonArray }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $set.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "cpi.affinity" . | fromJson }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "cpi.tolerations" . | fromJsonArray }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $set.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "cpi.podSecurityContext" . | fromJson | toYaml | nindent 2 }}
containers:
- name: {{ include "cpi.name" . | quote }}
  image: {{ include "cpi.image" . | quote }}
  imagePullPolicy: {{ include "cpi.either" (dict "root" . "new" "image.pullPolicy" "old" "daemonset.pullPolicy" "default" "IfNotPresent") | default "IfNotPresent" }}
  args:
  {{- range include "cpi.args" . | fromJsonArray }}
  - {{ . | quote }}
  {{- end }}
  {{- with include "cpi.env" . | fromJsonArray }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.extraEnvFrom }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $port := include "cpi.port" . | int }}
  {{- if $port }}
  ports:
  - name: https
    containerPort: {{ $port }}
    protocol: TCP
  {{- range $name, $probe := include "cpi.probes" . | fromJson }}
  {{ $name }}:
    {{- toYaml $probe | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $set.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- $context := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
    {{- include "cpi.overridden" (list $context (.Values.containerSecurityContext | default dict)) | fromJson | toYaml | nindent 4 }}
  volumeMounts:
  - name: vsphere-config-volume
    mountPath: {{ include "cpi.dir" . | quote }}
    readOnly: true
  {{- with concat ($set.extraVolumeMounts | default list) ($set.extraVolumesMounts | default list) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
- name: vsphere-config-volume
  configMap:
    name: {{ include "cpi.configMap" . | quote }}
{{- with $set.extraVolumes }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* A map with the keys of a second map over it, as JSON. Null removes a key. */}}
{{- define "cpi.overridden" -}}
{{- $all := deepCopy (index . 0) -}}
{{- range $key, $value := index . 1 -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $all $key -}}
{{- else -}}
{{- $_ := set $all $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* Security context of the Pod, as JSON. */}}
{{- define "cpi.podSecurityContext" -}}
{{- $old := .Values.securityContext | default dict -}}
{{- $new := .Values.podSecurityContext | default dict -}}
{{- range list "runAsUser" "fsGroup" -}}
{{- $before := dig . 1001 $old | default 1001 | int64 -}}
{{- if and (hasKey $new .) (ne $before 1001) (ne (get $new . | int64) $before) -}}
{{- fail (printf "podSecurityContext.%s and securityContext.%s are both set, and differ: remove securityContext.%s" . . .) -}}
{{- end -}}
{{- end -}}
{{- $context := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if dig "enabled" true $old -}}
{{- $user := dig "runAsUser" 1001 $old | int64 -}}
{{- if hasKey $new "runAsUser" -}}
{{- $user = get $new "runAsUser" | int64 -}}
{{- end -}}
{{- $_ := set $context "runAsUser" $user -}}
{{- $_ := set $context "runAsGroup" $user -}}
{{- $_ := set $context "runAsNonRoot" (ne $user 0) -}}
{{- $_ := set $context "fsGroup" (dig "fsGroup" 1001 $old | int64) -}}
{{- end -}}
{{- include "cpi.overridden" (list $context $new) -}}
{{- end -}}

{{/* Affinity of the Pods, as JSON. The Pods of a Deployment are on different nodes. */}}
{{- define "cpi.affinity" -}}
{{- $affinity := deepCopy (dig "affinity" dict (.Values.daemonset | default dict) | default dict) -}}
{{- if and (eq (include "cpi.kind" .) "Deployment") (not (hasKey $affinity "podAntiAffinity")) -}}
{{- $selector := dict "matchLabels" (dict "app" (include "cpi.name" .)) -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" $selector -}}
{{- $_ := set $affinity "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) -}}
{{- end -}}
{{- toJson $affinity -}}
{{- end -}}

{{/* Tolerations of the Pods, as a list in JSON. The DaemonSet controller adds four of them to its Pods by itself. */}}
{{- define "cpi.tolerations" -}}
{{- $all := dig "tolerations" list (.Values.daemonset | default dict) | default list -}}
{{- if eq (include "cpi.kind" .) "Deployment" -}}
{{- range list "network-unavailable" "disk-pressure" "memory-pressure" "pid-pressure" -}}
{{- $all = append $all (dict "key" (printf "node.kubernetes.io/%s" .) "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
{{- end -}}
{{- concat $all (.Values.additionalTolerations | default list) | toJson -}}
{{- end -}}

{{/* Probes of the container, as JSON. */}}
{{- define "cpi.probes" -}}
{{- $address := include "cpi.bindAddress" . -}}
{{- $http := dict "port" (include "cpi.port" . | int) "scheme" "HTTPS" -}}
{{- if and $address (not (has $address (list "0.0.0.0" "::"))) -}}
{{- $_ := set $http "host" $address -}}
{{- end -}}
{{- $liveness := dict "path" "/livez" "initialDelaySeconds" 10 "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6 -}}
{{- $readiness := dict "path" "/readyz" "initialDelaySeconds" 0 "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 3 -}}
{{- $probes := dict -}}
{{- range $name, $default := dict "liveness" $liveness "readiness" $readiness -}}
{{- $given := dig $name dict ($.Values.probes | default dict) | default dict -}}
{{- $probe := include "cpi.overridden" (list $default $given) | fromJson -}}
{{- if dig "enabled" true $probe -}}
{{- $get := set (deepCopy $http) "path" $probe.path -}}
{{- $probe = omit $probe "path" "enabled" -}}
{{- if not (int $probe.initialDelaySeconds) -}}
{{- $probe = omit $probe "initialDelaySeconds" -}}
{{- end -}}
{{- $_ := set $probes (printf "%sProbe" $name) (set $probe "httpGet" $get) -}}
{{- end -}}
{{- end -}}
{{- toJson $probes -}}
{{- end -}}
