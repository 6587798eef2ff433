{{/*
Quantities by resource name, as a field of a CRD: a dictionary with the field's name, its description, and what an amount of 0 means.
*/}}
{{- define "fluxqueue.crd.amounts" -}}
type: object
description: {{ .description }}
maxProperties: 32
additionalProperties:
  anyOf: [{type: integer}, {type: string}]
  x-kubernetes-int-or-string: true
  maxLength: 32
  pattern: "^[0-9]+(\\.[0-9]*)?([KMGTPE]i|[munkMGTPE]|[eE][0-9]{1,2})?$"
x-kubernetes-validations:
  - rule: "self.all(name, name in ['cpu', 'memory', 'ephemeral-storage', 'pods'] || name.startsWith('hugepages-') || name.contains('/'))"
    message: "{{ .field }}: a name is cpu, memory, ephemeral-storage, pods, hugepages-SIZE, or has a domain such as nvidia.com/gpu"
  - rule: "self.all(name, type(self[name]) != int || self[name] >= 0)"
    message: "{{ .field }}: a quantity is not negative; 0 {{ .zero }} none of it"
{{- end }}
