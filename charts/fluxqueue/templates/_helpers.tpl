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
{{- define "fluxqueue.scheduler.name" -}}{{ include "fluxqueue.fullname" . }}-scheduler{{- end -}}
{{- define "fluxqueue.dashboard.name" -}}{{ include "fluxqueue.fullname" . }}-dashboard{{- end -}}
{{- define "fluxqueue.postgres.name" -}}{{ include "fluxqueue.fullname" . }}-postgres{{- end -}}
{{- define "fluxqueue.postgres.tlsSecret" -}}
{{- default (printf "%s-tls" (include "fluxqueue.postgres.name" .)) .Values.postgres.tls.existingSecret -}}
{{- end -}}

{{/* The names that the bundled Postgres is called by: a list, as JSON. The first is that of the connection string. */}}
{{- define "fluxqueue.postgres.dnsNames" -}}
{{- $service := printf "%s.%s.svc" (include "fluxqueue.postgres.name" .) .Release.Namespace -}}
{{- list $service (printf "%s.%s" $service .Values.clusterDomain) (printf "%s.%s" (include "fluxqueue.postgres.name" .) .Release.Namespace) (include "fluxqueue.postgres.name" .) | toJson -}}
{{- end -}}

{{/* The name by which the API server verifies the webhook. */}}
{{- define "fluxqueue.webhook.serverName" -}}
{{- if .Values.webhook.clientUrl -}}
{{- (urlParse .Values.webhook.clientUrl).hostname -}}
{{- else -}}
{{- printf "%s.%s.svc" (include "fluxqueue.webhook.name" .) .Release.Namespace -}}
{{- end -}}
{{- end }}

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
{{- define "fluxqueue.scheduler.serviceAccount" -}}
{{- default (include "fluxqueue.scheduler.name" .) .Values.scheduler.serviceAccount.name -}}
{{- end -}}

{{- define "fluxqueue.dashboard.serviceAccount" -}}
{{- default (include "fluxqueue.dashboard.name" .) .Values.dashboard.serviceAccount.name -}}
{{- end -}}

{{/* What each Service serves with: one of the site, or a key and certificate of its own, which the queue or cert-manager makes. */}}
{{- define "fluxqueue.queue.metricsSecret" -}}{{ include "fluxqueue.queue.name" . }}-tls{{- end -}}
{{- define "fluxqueue.scheduler.metricsSecret" -}}{{ include "fluxqueue.scheduler.name" . }}-tls{{- end -}}
{{- define "fluxqueue.scheduler.tlsSecret" -}}
{{- default (include "fluxqueue.scheduler.metricsSecret" .) .Values.scheduler.extender.tlsSecret -}}
{{- end -}}
{{- define "fluxqueue.dashboard.tlsSecret" -}}
{{- default (printf "%s-tls" (include "fluxqueue.dashboard.name" .)) .Values.dashboard.tlsSecret -}}
{{- end -}}

{{/* The Services, besides the webhook's, whose certificates the queue keeps where cert-manager does not: a list, as JSON. */}}
{{- define "fluxqueue.certificateServices" -}}
{{- $services := list (include "fluxqueue.queue.name" .) -}}
{{- if .Values.scheduler.enabled }}{{ $services = append $services (include "fluxqueue.scheduler.name" .) }}{{ end -}}
{{- if and .Values.dashboard.enabled (not .Values.dashboard.tlsSecret) }}{{ $services = append $services (include "fluxqueue.dashboard.name" .) }}{{ end -}}
{{- $services | toJson -}}
{{- end -}}

{{/* The ServiceAccount whose tokens open the queue's doctor; its name with "-repair", the repair. */}}
{{- define "fluxqueue.doctor.name" -}}{{ include "fluxqueue.fullname" . }}-doctor{{- end -}}

{{/* Who the API server sees when the queue speaks: the identity the policies make an exception for. */}}
{{- define "fluxqueue.queue.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "fluxqueue.queue.serviceAccount" . }}
{{- end -}}

{{/* The same of the scheduler, which a policy keeps to what it is for. */}}
{{- define "fluxqueue.scheduler.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "fluxqueue.scheduler.serviceAccount" . }}
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

{{/* Where the queue finds its matcher: beside it, unless a foreign one is elsewhere. */}}
{{- define "fluxqueue.fluxion.address" -}}
{{- $elsewhere := and (eq .Values.queue.config.matcher "foreign") .Values.fluxion.foreign.address -}}
{{- $elsewhere | default (printf "127.0.0.1:%d" (int .Values.fluxion.port)) -}}
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
Which namespaces are managed: the selector of the webhook configuration and of the enforcing policies' bindings. Below, the same in CEL.
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

{{/*
The same for a policy that is bound to all namespaces.
*/}}
{{- define "fluxqueue.managedNamespace" -}}
namespaceObject.metadata.?labels[?'fluxqueue/managed'].orValue('')
{{- if eq .Values.namespaces "optIn" }} == 'true'{{ else }} != 'false'{{ end }} && !(namespaceObject.metadata.name in {{ include "fluxqueue.exemptNamespaces" . | replace "\"" "'" }})
{{- end -}}

{{/* CEL list of strings; JSON string literals are CEL string literals. */}}
{{- define "fluxqueue.jobControllers" -}}
{{- .Values.webhook.jobControllers | toJson -}}
{{- end -}}

{{/*
The users of enforcing mode: all except those that an administrator exempts, and except stock controllers with a template that is marked
as exempt, which only an exempt user can have written. The queue may change existing objects; objects that it creates (for a MiniCluster
that a user wrote) are checked too. Takes `root`, and CEL for that annotation's value as `mark`.
*/}}
{{- define "fluxqueue.enforcement.conditions" -}}
{{- $enforcement := .root.Values.enforcement }}
{{- $users := $enforcement.exempt.users }}
{{- range $enforcement.exempt.serviceAccounts }}{{ $users = append $users (printf "system:serviceaccount:%s" .) }}{{ end -}}
- name: not-a-change-of-the-queue
  expression: "request.operation == 'CREATE' || request.userInfo.username != '{{ include "fluxqueue.queue.username" .root }}'"
- name: not-exempt
  expression: >-
    !(request.userInfo.username in {{ $users | toJson }})
    && !request.userInfo.?groups.orValue([]).exists(group, group in {{ $enforcement.exempt.groups | toJson }})
- name: not-of-an-exempt-template
  expression: >-
    !(request.userInfo.username in {{ $enforcement.controllers | toJson }} && {{ .mark }} == 'true')
{{- end -}}

{{/* Where a program listens: `::` in place of all IPv4 addresses, where IPv6 comes first. Takes `root` and `host`. */}}
{{- define "fluxqueue.host" -}}
{{- if and (eq .host "0.0.0.0") (eq (first (append .root.Values.ipFamilies "IPv4")) "IPv6") -}}::{{- else -}}{{ .host }}{{- end -}}
{{- end -}}

{{/* The IP families of a Service: lines below its `spec`. */}}
{{- define "fluxqueue.families" -}}
{{- with .Values.ipFamilies }}
  ipFamilyPolicy: {{ ternary "SingleStack" "RequireDualStack" (eq (len .) 1) }}
  ipFamilies: {{ toJson . }}
{{- end -}}
{{- end -}}

{{/*
Pod and container settings that the "restricted" Pod Security Standard asks for. Without fixed ids, the cluster gives them: OpenShift's
restricted-v2 takes them from the range of the namespace, and refuses others.
*/}}
{{- define "fluxqueue.podSecurityContext" -}}
runAsNonRoot: true
{{- if .root.Values.podSecurity.fixedIds }}
runAsUser: {{ .uid }}
runAsGroup: {{ .uid }}
fsGroup: {{ .uid }}
{{- end }}
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
{{- with .program.priorityClassName | default (ternary (include "fluxqueue.priorityClass" .root) "" .root.Values.priorityClass.create) }}
priorityClassName: {{ . }}
{{- end }}
{{- with .program.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .program.affinity }}
affinity:
  {{- toYaml .program.affinity | nindent 2 }}
{{- else if gt (int .program.replicas) 1 }}
{{- /*
Zones by affinity and hosts by a spread constraint: a second constraint would make the scheduler ignore every node without a zone's label,
and with it the first one.
*/}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: topology.kubernetes.io/zone
          labelSelector:
            matchLabels:
              {{- include "fluxqueue.selectorLabels" (dict "root" .root "component" .component) | nindent 14 }}
          matchLabelKeys: [pod-template-hash]
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
    # The pods of one revision spread among themselves: during an upgrade those of the former one do not count.
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end -}}

{{- define "fluxqueue.priorityClass" -}}{{ include "fluxqueue.fullname" . }}-programs{{- end -}}

{{/* The ServiceAccount's token, as the API server would inject it; only containers that mount the volume see it. */}}
{{- define "fluxqueue.token.volume" -}}
- name: token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end -}}
{{- define "fluxqueue.token.mount" -}}
- name: token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
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

{{/* How the queue reaches Postgres: its connection strings, and how libpq verifies the server unless a string says so itself. */}}
{{- define "fluxqueue.database.environment" -}}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "fluxqueue.database.secretName" . }}
      key: {{ include "fluxqueue.database.secretKey" . }}
{{- with .Values.database.existingSecret.directKey }}
- name: DATABASE_DIRECT_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "fluxqueue.database.secretName" $ }}
      key: {{ . }}
{{- end }}
{{- $authority := include "fluxqueue.database.authority" . | fromJson }}
{{- with .Values.database.tls.mode | default (ternary "verify-full" "" (ne $authority.name "")) }}
- name: PGSSLMODE
  value: {{ . }}
{{- end }}
{{- if $authority.name }}
- name: PGSSLROOTCERT
  value: /etc/fluxqueue-postgres/ca.crt
{{- end }}
{{- end -}}

{{/* The Secret and key of the authority that the server of the database is verified by: the bundled one's, or what is named. As JSON. */}}
{{- define "fluxqueue.database.authority" -}}
{{- if .Values.postgres.enabled -}}
{{- dict "name" (include "fluxqueue.postgres.tlsSecret" .) "key" "ca.crt" | toJson -}}
{{- else -}}
{{- .Values.database.tls.caSecret | toJson -}}
{{- end -}}
{{- end -}}

{{- define "fluxqueue.crd.annotations" -}}
{{- if .Values.crds.keep }}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
{{- end -}}
