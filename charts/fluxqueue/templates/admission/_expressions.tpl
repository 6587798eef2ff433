{{/*
CEL that several policies share. The API server converts the whole object, and the former one, before it computes anything: once for the
match conditions of a policy, and three times more if they are true. So a policy has one match condition that says whether a rule of it
could be broken, it is false for nearly every request, and what concerns the same objects is one policy.
*/}}

{{- define "fluxqueue.allocationKeys" -}}
['fluxqueue/allocation', 'fluxqueue/fluxion-nodes', 'fluxqueue/gang-size', 'fluxqueue/pin-until', 'fluxqueue/jobid', 'fluxqueue/pinned']
{{- end -}}

{{/* True if the queue asks. */}}
{{- define "fluxqueue.byTheQueue" -}}
request.userInfo.username == '{{ include "fluxqueue.queue.username" . }}'
{{- end -}}

{{/* True if an allocation key is in one of these maps of labels or annotations: takes `of`, a list of maps that may be absent. */}}
{{- define "fluxqueue.carriesKeys" -}}
{{- $maps := list }}{{ range .of }}{{ $maps = append $maps (printf "%s.orValue({})" .) }}{{ end -}}
[{{ join ", " $maps }}].exists(marks, marks.exists(key, key in {{ include "fluxqueue.allocationKeys" . }}))
{{- end -}}

{{/* True if an allocation key differs between the object and the former one: takes `of`, paths of maps of labels and annotations. */}}
{{- define "fluxqueue.changesKeys" -}}
{{- $pairs := list }}{{ range .of }}{{ $pairs = append $pairs (printf "[object.%s.orValue({}), oldObject.%s.orValue({})]" . .) }}{{ end -}}
[{{ join ", " $pairs }}].exists(pair, pair[0] != pair[1]
&& {{ include "fluxqueue.allocationKeys" . }}.exists(key, pair[0][?key].orValue('') != pair[1][?key].orValue('')))
{{- end -}}

{{/* True if the object names another submitter than its creator, or than before. It may be left out. */}}
{{- define "fluxqueue.forgesSubmitter" -}}
!(object.metadata.?annotations[?'fluxqueue/submitted-by'].orValue('') in ['', request.operation == 'CREATE' ? request.userInfo.username
: oldObject.metadata.?annotations[?'fluxqueue/submitted-by'].orValue('')])
{{- end -}}

{{/* True if two maps differ in nothing but the values of fields that are listed: takes `path` and `free`. */}}
{{- define "fluxqueue.sameBut" -}}
dyn(object.{{ .path }}).all(field, field in {{ .free }}
|| (field in dyn(oldObject.{{ .path }}) && dyn(oldObject.{{ .path }})[field] == dyn(object.{{ .path }})[field]))
&& dyn(oldObject.{{ .path }}).all(field, field in {{ .free }} || field in dyn(object.{{ .path }}))
{{- end -}}

{{/* True if labels and annotations differ in nothing but keys that begin with fluxqueue: takes `path`, that of their metadata. */}}
{{- define "fluxqueue.sameMarks" -}}
[{{ range $position, $part := list "labels" "annotations" }}{{ if $position }}, {{ end -}}
[object.{{ $.path }}.?{{ $part }}.orValue({}), oldObject.{{ $.path }}.?{{ $part }}.orValue({})]
{{- end }}].all(pair, pair[0] == pair[1]
|| (pair[0].all(key, key.startsWith('fluxqueue') || pair[0][?key] == pair[1][?key])
&& pair[1].all(key, key.startsWith('fluxqueue') || key in pair[0])))
{{- end -}}

{{- define "fluxqueue.sameMetadata" -}}
{{ include "fluxqueue.sameMarks" (dict "path" "metadata") }}
&& object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([])
&& object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])
{{- end -}}

{{/* The same of a pod, but for the finalizer of the Job controller, which goes from a pod of a Job that the queue has placed. */}}
{{- define "fluxqueue.samePodMetadata" -}}
{{ include "fluxqueue.sameMarks" (dict "path" "metadata") }}
&& (object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([])
|| ('fluxqueue/jobid' in oldObject.metadata.?labels.orValue({})
&& variables.owners.exists(owner, owner.kind == 'Job' && owner.apiVersion.startsWith('batch/'))
&& object.metadata.?finalizers.orValue([])
== oldObject.metadata.?finalizers.orValue([]).filter(finalizer, finalizer != 'batch.kubernetes.io/job-tracking')))
&& object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])
{{- end -}}

{{- define "fluxqueue.sameTemplate" -}}
{{ include "fluxqueue.sameBut" (dict "path" "spec.template.spec" "free" "['schedulingGates', 'affinity']") }}
&& {{ include "fluxqueue.sameMarks" (dict "path" "spec.template.?metadata") }}
{{- end -}}

{{/* Variables of the rules about the queue's identity, in each policy that has such rules. */}}
{{- define "fluxqueue.queueRules.variables" -}}
# Of several kinds: untyped, since no field is of all of them.
- name: after
  expression: "dyn(object)"
- name: before
  expression: "dyn(oldObject)"
# Labels and annotations of an object and of its template, before the change.
- name: formerMarks
  expression: >-
    [variables.before.metadata.?labels.orValue({}), variables.before.metadata.?annotations.orValue({}),
    variables.before.spec.?template.?metadata.?labels.orValue({}), variables.before.spec.?template.?metadata.?annotations.orValue({})]
# What the queue holds, held or has placed: its gate, its suspension, an allocation, a services pod, or a pod for our scheduler.
- name: held
  expression: >-
    variables.formerMarks.exists(marks, ['fluxqueue/suspended-by', 'fluxqueue/allocation', 'fluxqueue/jobid', 'fluxqueue/services-of',
    'fluxqueue/fluxion-nodes'].exists(key, key in marks))
    || variables.before.spec.?schedulingGates.orValue([]).exists(gate, gate.name == 'fluxqueue')
    || variables.before.spec.?template.?spec.?schedulingGates.orValue([]).exists(gate, gate.name == 'fluxqueue')
    || variables.before.spec.?schedulerName.orValue('') == 'FluxionScheduler'
# Whose object it is: of a MiniCluster, or of a Job that is annotated as one.
- name: owners
  expression: >-
    (request.operation == 'CREATE' ? variables.after : variables.before).metadata.?ownerReferences.orValue([])
    .filter(owner, owner.?controller.orValue(false))
- name: ofAMiniCluster
  expression: "variables.owners.exists(owner, owner.kind == 'MiniCluster' && owner.apiVersion.startsWith('flux-framework.org/'))"
# A pod that asks an autoscaler for a node and never runs: it is the queue's own, no scheduler has this name, and it names no node itself.
- name: aRoomPod
  expression: >-
    request.resource.resource == 'pods' && request.namespace == '{{ .Release.Namespace }}'
    && (request.operation == 'CREATE' ? variables.after : variables.before).spec.?schedulerName.orValue('') == 'fluxqueue-rooms'
    && (request.operation == 'CREATE' ? variables.after : variables.before).spec.?nodeName.orValue('') == ''
{{- end -}}

{{/* The rules about the queue's identity that concern Jobs and Pods alike. */}}
{{- define "fluxqueue.queueRules.scope" -}}
- expression: "!variables.changedByTheQueue || variables.managed || variables.held || variables.aRoomPod"
  reason: Forbidden
  messageExpression: >-
    'the queue of fluxqueue changes nothing in namespace ' + request.namespace + ', which is not managed, but what it held there'
{{- end -}}
{{- define "fluxqueue.queueRules.creations" -}}
- expression: "!variables.byTheQueue || request.operation != 'CREATE' || (variables.managed && variables.ofAMiniCluster) || variables.aRoomPod"
  reason: Forbidden
  message: "the queue of fluxqueue creates objects for MiniClusters in managed namespaces and room pods in its own, and no others"
{{- end -}}
{{/* Its context is CEL that is true if only the fields differ that the queue changes. */}}
{{- define "fluxqueue.queueRules.fields" -}}
- expression: {{ printf "!variables.changedByTheQueue || (%s)" . | quote }}
  reason: Forbidden
  message: >-
    the queue of fluxqueue changes whether, how often and where pods run (suspend, parallelism, completions, scheduling gates, affinity),
    labels and annotations of its own, and nothing else
{{- end -}}
