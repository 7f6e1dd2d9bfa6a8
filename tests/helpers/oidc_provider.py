"""A real OpenID Connect provider: django-oauth-toolkit, as an organization runs it, with people, groups and a login.

`oidc_provider.py PORT FOLDER`: serves until it is killed; FOLDER has `key.pem`, its signing key, read at each request;
`away`, where it answers nothing about keys, and `hang`, while it does not answer; and gets `asked`, the paths that were
asked for. People, groups and what else an admin does there: `POST /admin/`.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django
from django.conf import settings

WAIT = {"timeout": 60, "transaction_mode": "IMMEDIATE"}
PASSWORD = "correct horse battery"
LOGIN = """<form method=post>{% csrf_token %}{{ form }}<button>Log in</button></form>"""
PORT, FOLDER = (int(sys.argv[1]), Path(sys.argv[2])) if __name__ == "__main__" else (0, Path())
ISSUER = f"http://127.0.0.1:{PORT}/o"


def token_of(request, refresh_token=False):
    """An access token by RFC 9068, or a secret that renews it."""
    from jwcrypto import jwt
    from oauth2_provider.models import get_application_model

    if refresh_token:
        return uuid.uuid4().hex
    key, now = get_application_model().objects.get(client_id=request.client_id).jwk_key, int(time.time())
    about = {"iss": ISSUER, "aud": request.client_id, "iat": now, "exp": now + 3600, "sub": str(request.user.pk)}
    token = jwt.JWT(
        {"alg": "RS256", "kid": key.thumbprint(), "typ": "at+jwt"}, about | {"groups": groups_of(request.user)}
    )
    token.make_signed_token(key)
    return token.serialize()


def groups_of(user):
    return sorted(user.groups.values_list("name", flat=True))


def admin(request):
    """What an admin of the organization does."""
    from django.contrib.auth.models import Group, User
    from django.http import JsonResponse
    from oauth2_provider.models import get_application_model

    for what, about in json.loads(request.body).items():
        if what == "client":
            application = get_application_model()(**about, algorithm="RS256", skip_authorization=True)
            application.save()
        elif what == "user":
            user, is_new = User.objects.get_or_create(username=about["name"])
            if is_new:  # else it would end their sessions
                user.set_password(PASSWORD)
            user.is_active = about.get("active", True)
            user.save()
            user.groups.set(Group.objects.get_or_create(name=name)[0] for name in about["groups"])
    return JsonResponse({})


def keys_may_be_away(answer):
    """The key in force is that of the file; `away`: no keys are told. The toolkit has a device flow, and does not say
    so in its discovery, as others do.
    """
    from django.http import HttpResponse, JsonResponse
    from oauth2_provider.settings import oauth2_settings

    def middleware(request):
        oauth2_settings.OIDC_RSA_PRIVATE_KEY = (FOLDER / "key.pem").read_text()
        with (FOLDER / "asked").open("a") as asked:
            asked.write(f"{request.path}\n")
        while "well-known" in request.path and (FOLDER / "hang").exists():
            time.sleep(0.02)
        if "well-known" in request.path and (FOLDER / "away").exists():
            return HttpResponse(status=503)
        told = answer(request)
        if "openid-configuration" in request.path:
            about = {"device_authorization_endpoint": f"{ISSUER}/device-authorization/"}
            return JsonResponse({**json.loads(told.content), **about})
        return told

    return middleware


def configure():
    templates = {"registration/login.html": LOGIN}
    loaders = ["django.template.loaders.app_directories.Loader"]
    settings.configure(
        SECRET_KEY="of a test", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, USE_TZ=True,
        INSTALLED_APPS=[
            "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware", "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware", f"{__name__}.keys_may_be_away",
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "people.db", "OPTIONS": WAIT}},
        TEMPLATES=[{
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {"context_processors": ["django.template.context_processors.request"],
                        "loaders": [("django.template.loaders.locmem.Loader", templates), *loaders]},
        }],
        LOGIN_URL="/login/", SESSION_COOKIE_NAME="people", CSRF_COOKIE_NAME="people-csrf",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True, "OIDC_ISS_ENDPOINT": ISSUER, "OIDC_RSA_PRIVATE_KEY": (FOLDER / "key.pem").read_text(),
            "SCOPES": {"openid": "who you are"}, "PKCE_REQUIRED": True, "ACCESS_TOKEN_GENERATOR": token_of,
            "OAUTH2_VALIDATOR_CLASS": f"{__name__}.validator", "DEVICE_FLOW_INTERVAL": 1,
            "OAUTH_DEVICE_VERIFICATION_URI": f"{ISSUER}/device/", "ALLOWED_REDIRECT_URI_SCHEMES": ["http", "https"],
        },
    )  # fmt: skip
    django.setup()


def validator(*arguments, **more):
    """The toolkit's rules, groups in tokens, and no renewal for whom the organization let go."""
    from oauth2_provider.oauth2_validators import OAuth2Validator

    class Validator(OAuth2Validator):
        oidc_claim_scope = None

        def get_additional_claims(self, request):
            return {"groups": groups_of(request.user)}

        def validate_refresh_token(self, refresh_token, client, request, *more, **named):
            return super().validate_refresh_token(refresh_token, client, request, *more, **named) and (
                request.user.is_active
            )

    return Validator(*arguments, **more)


class Quiet(WSGIRequestHandler):
    def log_message(self, *about):
        pass


class Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


if __name__ == "__main__":
    configure()
    from django.contrib.auth.views import LoginView
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application
    from django.urls import include, path
    from django.views.decorators.csrf import csrf_exempt

    urlpatterns = [path("o/", include("oauth2_provider.urls")), path("login/", LoginView.as_view())]
    urlpatterns.append(path("admin/", csrf_exempt(admin)))
    call_command("migrate", verbosity=0)
    make_server("127.0.0.1", PORT, get_wsgi_application(), Threads, Quiet).serve_forever()
