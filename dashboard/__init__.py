"""The dashboard: the queue in a browser, with the rights of who looks.

`service` watches the cluster with its own identity, which only reads. `people`, `sessions` and `access` say
who asks and what he may see; `pages` makes the pages, and `live` sends what changes. Verbs are sent with the
token of the person (`verbs`). See docs/decisions/0037.
"""
