"""Test control: the verbs of this kit over HTTP, for tests in any language (docs/testing-any-language.md).

host      the server of a broker that was started with test control; where the broker finds this package
desk      what is kept between two requests: namespaces, faults, snapshots, the threads that wait
requests  bodies and parameters; answers  what comes back
routes    the endpoints below ``/api/v1/test``, which call the verbs and nothing else
"""
