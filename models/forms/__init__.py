"""The forms that a released model can have; `forms.registry` lists them."""
