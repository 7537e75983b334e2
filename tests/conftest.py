"""Profiles of hypothesis: ``quick`` stops at the first failure, for those who only want to know that there is one."""

from hypothesis import Phase, settings

settings.register_profile("quick", phases=[Phase.explicit, Phase.generate], database=None)
