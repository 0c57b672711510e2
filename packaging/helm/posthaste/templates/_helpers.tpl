{{- define "posthaste.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* Short enough for what is appended to it. */}}
{{- define "posthaste.fullname" -}}
{{- $full := printf "%s-%s" .Release.Name (include "posthaste.name" .) }}
{{- if .Values.fullnameOverride }}
{{- $full = .Values.fullnameOverride }}
{{- else if contains (include "posthaste.name" .) .Release.Name }}
{{- $full = .Release.Name }}
{{- end }}
{{- $full = $full | trunc 52 | trimSuffix "-" }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) }}
{{- $rule := "a Service's name begins with a letter, and has letters, digits and - alone" }}
{{- fail (printf "the name %q: %s; set fullnameOverride" $full $rule) }}
{{- end }}
{{- $full }}
{{- end }}

{{- define "posthaste.releaseLabels" -}}
app.kubernetes.io/name: {{ include "posthaste.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The init Job's pods must not be taken for relays. */}}
{{- define "posthaste.selectorLabels" -}}
{{ include "posthaste.releaseLabels" . }}
app.kubernetes.io/component: relay
{{- end }}

{{- define "posthaste.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "posthaste.labels" -}}
{{ include "posthaste.selectorLabels" . }}
{{ include "posthaste.commonLabels" . }}
{{- end }}

{{- define "posthaste.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- define "posthaste.secretName" -}}
{{- default (include "posthaste.fullname" .) .Values.secret.name }}
{{- end }}

{{- define "posthaste.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "posthaste.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The relay's configuration file. */}}
{{- define "posthaste.config" -}}
{{- if regexMatch "(?m)^\\s*(\\[\\s*)?[\"']?relay[\"']?\\s*[\\]=.]" .Values.config }}
{{- fail "config: the chart writes the section [relay]; give its settings below relay.settings" }}
{{- end }}
{{- $literal := regexReplaceAll "\\$\\{[^}]*\\}" .Values.config "" }}
{{- $login := "://[^/@\"'\\s]*:[^@/?\"'\\s]+@" }}
{{- $token := "nats://[^/@\"'\\s]+@" }}
{{- $parameter := "(?i)[?&][a-z_]*(password|secret[a-z_]*)=,*[^&,\"'\\s]" }}
{{- if regexMatch (printf "%s|%s|%s" $login $token $parameter) $literal }}
{{- $fix := "put the address into the Secret, and name its key here as ${KEY}" }}
{{- fail (printf "config: an address holds a password, and a ConfigMap is no secret; %s" $fix) }}
{{- end }}
{{- /* Before the section: a key at its head belongs to no section. */}}
{{- .Values.config | trim }}

[relay]
http = {{ printf "%s:%d" .Values.http.address (int64 .Values.http.port) | toJson }}
http_allow_remote = true
shutdown_timeout = "{{ int64 .Values.relay.shutdownTimeoutSeconds }}s"
{{- range $key, $value := .Values.relay.settings }}
{{ $key }} = {{ if kindIs "string" $value }}{{ toJson $value }}{{ else }}{{ int64 $value }}{{ end }}
{{- end }}
{{- end }}

{{/* Of relays and of the init Job alike. */}}
{{- define "posthaste.podSpec" -}}
automountServiceAccountToken: false
# Their variables would be as many as the namespace has Services.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}
