{{- define "name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-melforge
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: melforge
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
