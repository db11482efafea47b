"""Keep the access that people delegate through Globus."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('portal', '0002_idempotency_resumption'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='GlobusFunction',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('owner', models.CharField(max_length=60)),
                ('digest', models.CharField(max_length=64)),
                ('function_id', models.CharField(max_length=36)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('owner', 'digest'), name='one_globus_function_per_owner')],
            },
        ),
        migrations.CreateModel(
            name='GlobusIdentity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sub', models.CharField(max_length=64, unique=True)),
                ('username', models.CharField(max_length=150)),
                ('wanted', models.JSONField(default=dict)),
                ('linked_at', models.DateTimeField()),
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='globus_identity', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='GlobusToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('resource_server', models.CharField(max_length=100)),
                ('scope', models.TextField()),
                ('sealed', models.TextField()),
                ('expires_at', models.DateTimeField()),
                ('is_refused', models.BooleanField(default=False)),
                ('updated_at', models.DateTimeField()),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'resource_server'), name='one_globus_token_per_server', nulls_distinct=False)],
            },
        ),
    ]
