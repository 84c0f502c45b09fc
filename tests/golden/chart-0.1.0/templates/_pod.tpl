{{/* The specification of the pod, for the DaemonSet and for the test of the release. */}}
{{- define "cpi.pod" -}}
{{- $config := include "cpi.config" . | fromJson }}
{{- $set := .Values.daemonset | default dict }}
{{- $security := .Values.securityContext | default dict }}
{{- $cmdline := $set.cmdline | default dict }}
{{- $dir := dig "cloudConfig" "dir" "" $cmdline | default "/etc/cloud" }}
{{- $file := dig "cloudConfig" "file" "" $cmdline | default "vsphere.conf" -}}
serviceAccountName: {{ include "cpi.account" . | quote }}
priorityClassName: system-node-critical
hostNetwork: true
dnsPolicy: {{ $set.dnsPolicy | default "ClusterFirst" }}
# Else a Service that is called vsphere-vcenter-… would define variables that read as a vCenter.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $set.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $set.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $set.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $set.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  seccompProfile:
    type: RuntimeDefault
  {{- if dig "enabled" true $security }}
  {{- $user := dig "runAsUser" 1001 $security | int64 }}
  runAsUser: {{ $user }}
  runAsGroup: {{ $user }}
  runAsNonRoot: {{ ne $user 0 }}
  fsGroup: {{ dig "fsGroup" 1001 $security | int64 }}
  {{- else }}
  runAsNonRoot: true
  {{- end }}
containers:
- name: {{ include "cpi.name" . | quote }}
  image: {{ include "cpi.image" . | quote }}
  imagePullPolicy: {{ $set.pullPolicy | default "IfNotPresent" }}
  args:
  - --cloud-provider=vsphere
  - {{ printf "--v=%s" (include "cpi.text" (dig "logging" 2 $cmdline)) | quote }}
  - {{ printf "--cloud-config=%s/%s" $dir $file | quote }}
  {{- range $flag, $value := $cmdline.additionalParams | default dict }}
  {{- if or (kindIs "invalid" $value) (and (kindIs "string" $value) (eq $value "")) }}
  - {{ printf "--%s" $flag | quote }}
  {{- else }}
  - {{ printf "--%s=%s" $flag (include "cpi.text" $value) | quote }}
  {{- end }}
  {{- end }}
  {{- with include "cpi.env" . | fromJsonArray }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $port := dig "additionalParams" "secure-port" 10258 $cmdline | int }}
  {{- if $port }}
  {{- $host := dig "additionalParams" "bind-address" "" $cmdline | toString }}
  ports:
  - name: https
    containerPort: {{ $port }}
    protocol: TCP
  livenessProbe:
    httpGet:
      path: /livez
      port: {{ $port }}
      scheme: HTTPS
      {{- if and $host (not (has $host (list "0.0.0.0" "::"))) }}
      host: {{ $host | quote }}
      {{- end }}
    initialDelaySeconds: 10
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    httpGet:
      path: /readyz
      port: {{ $port }}
      scheme: HTTPS
      {{- if and $host (not (has $host (list "0.0.0.0" "::"))) }}
      host: {{ $host | quote }}
      {{- end }}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  {{- end }}
  {{- with $set.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
  volumeMounts:
  - name: vsphere-config-volume
    mountPath: {{ $dir | quote }}
    readOnly: true
  {{- with concat ($set.extraVolumeMounts | default list) ($set.extraVolumesMounts | default list) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
- name: vsphere-config-volume
  configMap:
    name: {{ if $config.enabled }}{{ $config.name | default "cloud-config" | quote }}{{ else }}cloud-config{{ end }}
{{- with $set.extraVolumes }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}
