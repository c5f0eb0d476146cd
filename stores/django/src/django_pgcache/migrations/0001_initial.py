from django.conf import settings
from django.db import migrations

from django_pgcache.operations import configured


class Migration(migrations.Migration):
    """Creates the caches of CACHES. For one that is added later, put a `CreateCache` into a migration of your own."""

    initial = True
    operations = [*configured(settings)]
