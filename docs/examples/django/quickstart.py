"""Runs orders.py without a project: Django's settings from DATABASE_URL."""

import os

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

url = conninfo_to_dict(os.environ["DATABASE_URL"])
database = {"ENGINE": "django.db.backends.postgresql", "NAME": url["dbname"], "USER": url["user"]}
database |= {"HOST": url["host"], "PORT": url.get("port", "")}
settings.configure(DATABASES={"default": database})
django.setup()

from orders import place_order  # noqa: E402, because models need the settings

place_order([{"item": "book", "count": 2}])
