"""The serializer that the page uses as an example."""

import json


class Json:
    def dumps(self, value):
        return json.dumps(value).encode()

    def loads(self, value):
        return json.loads(value)
