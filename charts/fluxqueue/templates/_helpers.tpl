{{/*
Names. Everything is called after `fluxqueue.fullname`, never after the release name as it was typed: a release called
"fluxqueue" gives "fluxqueue-webhook", one called "batch" gives "batch-fluxqueue-webhook". 63 characters less the longest suffix.
*/}}
{{- define "fluxqueue.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "fluxqueue.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "fluxqueue.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fluxqueue.queue.name" -}}{{ include "fluxqueue.fullname" . }}-queue{{- end -}}
{{- define "fluxqueue.webhook.name" -}}{{ include "fluxqueue.fullname" . }}-webhook{{- end -}}
{{- define "fluxqueue.postgres.name" -}}{{ include "fluxqueue.fullname" . }}-postgres{{- end -}}
{{/* How the API server reaches the webhook; takes `root` and `path`. */}}
{{- define "fluxqueue.webhook.client" -}}
{{- if .root.Values.webhook.clientUrl -}}
url: {{ trimSuffix "/" .root.Values.webhook.clientUrl }}{{ .path }}
{{- else -}}
service:
  name: {{ include "fluxqueue.webhook.name" .root }}
  namespace: {{ .root.Release.Namespace }}
  port: {{ .root.Values.webhook.servicePort }}
  path: {{ .path }}
{{- end -}}
{{- end -}}

{{- define "fluxqueue.webhook.secret" -}}{{ include "fluxqueue.fullname" . }}-webhook-tls{{- end -}}

{{- define "fluxqueue.queue.serviceAccount" -}}
{{- default (include "fluxqueue.queue.name" .) .Values.queue.serviceAccount.name -}}
{{- end -}}
{{- define "fluxqueue.webhook.serviceAccount" -}}
{{- default (include "fluxqueue.webhook.name" .) .Values.webhook.serviceAccount.name -}}
{{- end -}}

{{/* Who the API server sees when the queue speaks: the identity the policies make an exception for. */}}
{{- define "fluxqueue.queue.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "fluxqueue.queue.serviceAccount" . }}
{{- end -}}

{{- define "fluxqueue.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fluxqueue.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "fluxqueue.labels" -}}
{{ include "fluxqueue.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* "repository:tag", or "repository@digest" where one is given. */}}
{{- define "fluxqueue.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* What the webhook and the policies leave alone whatever labels say: a list, as JSON. */}}
{{- define "fluxqueue.exemptNamespaces" -}}
{{- concat (list "kube-system" "kube-public" "kube-node-lease" .Release.Namespace) .Values.exemptNamespaces | uniq | toJson -}}
{{- end -}}

{{/*
Which namespaces are managed. The webhook configuration and the policy bindings render the same selector: a Job that is held
by the one and not guarded by the other could be given a forged allocation.
*/}}
{{- define "fluxqueue.namespaceSelector" -}}
matchExpressions:
  - key: fluxqueue/managed
    {{- if eq .Values.namespaces "optIn" }}
    operator: In
    values: ["true"]
    {{- else }}
    operator: NotIn
    values: ["false"]
    {{- end }}
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: {{ include "fluxqueue.exemptNamespaces" . }}
{{- end -}}

{{/* CEL list of strings; JSON string literals are CEL string literals. */}}
{{- define "fluxqueue.jobControllers" -}}
{{- .Values.webhook.jobControllers | toJson -}}
{{- end -}}

{{/* Pod and container settings that the "restricted" Pod Security Standard asks for. */}}
{{- define "fluxqueue.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: {{ .uid }}
runAsGroup: {{ .uid }}
fsGroup: {{ .uid }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}
{{- define "fluxqueue.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Placement settings every Deployment offers alike: dict "root" $ "program" .Values.x "component" "x" */}}
{{- define "fluxqueue.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .program.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .program.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .program.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .program.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if gt (int .program.replicas) 1 }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "fluxqueue.selectorLabels" (dict "root" .root "component" .component) | nindent 8 }}
{{- end }}
{{- end -}}

{{/* Where DATABASE_URL comes from: the Secret's name and key. */}}
{{- define "fluxqueue.database.secretName" -}}
{{- if .Values.postgres.enabled -}}
{{- default (include "fluxqueue.postgres.name" .) .Values.postgres.existingSecret -}}
{{- else -}}
{{- required "database.existingSecret.name: name the Secret that holds the connection string, or set postgres.enabled" .Values.database.existingSecret.name -}}
{{- end -}}
{{- end -}}
{{- define "fluxqueue.database.secretKey" -}}
{{- if .Values.postgres.enabled -}}url{{- else -}}{{ .Values.database.existingSecret.key }}{{- end -}}
{{- end -}}

{{- define "fluxqueue.crd.annotations" -}}
{{- if .Values.crds.keep }}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
{{- end -}}
