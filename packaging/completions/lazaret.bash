# bash completion of lazaret; generated, do not edit.
# shellcheck shell=bash

_lazaret() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd='' words='' i
    COMPREPLY=()
    # bash splits --flag=value at the equals sign
    if [[ $cur == = ]]; then
        cur=''
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$cmd ${COMP_WORDS[i]}" in
            ' init') cmd='init' ;;
            ' image') cmd='image' ;;
            ' run') cmd='run' ;;
            ' doctor') cmd='doctor' ;;
            ' status') cmd='status' ;;
            ' sessions') cmd='sessions' ;;
            ' stop') cmd='stop' ;;
            ' review') cmd='review' ;;
            ' logs') cmd='logs' ;;
            ' console') cmd='console' ;;
            ' domain') cmd='domain' ;;
            ' net') cmd='net' ;;
            ' audit') cmd='audit' ;;
            ' git') cmd='git' ;;
            ' state') cmd='state' ;;
            ' prune') cmd='prune' ;;
            ' config') cmd='config' ;;
            ' trust') cmd='trust' ;;
            ' completion') cmd='completion' ;;
            ' help') cmd='help' ;;
            'image build') cmd='image build' ;;
            'image update') cmd='image update' ;;
            'image list') cmd='image list' ;;
            'net allow') cmd='net allow' ;;
            'net deny') cmd='net deny' ;;
            'net list') cmd='net list' ;;
            'net log') cmd='net log' ;;
            'audit list') cmd='audit list' ;;
            'audit show') cmd='audit show' ;;
            'audit verify') cmd='audit verify' ;;
            'audit export') cmd='audit export' ;;
            'audit sign') cmd='audit sign' ;;
            'git status') cmd='git status' ;;
            'git diff') cmd='git diff' ;;
            'git log') cmd='git log' ;;
            'git merge') cmd='git merge' ;;
            'git rebase') cmd='git rebase' ;;
            'git include') cmd='git include' ;;
            'git drop') cmd='git drop' ;;
            'git export') cmd='git export' ;;
            'state diff') cmd='state diff' ;;
            'state reset') cmd='state reset' ;;
            'state snapshot') cmd='state snapshot' ;;
            'state restore') cmd='state restore' ;;
            'state list') cmd='state list' ;;
            'state rm') cmd='state rm' ;;
            'state rebase') cmd='state rebase' ;;
            'config show') cmd='config show' ;;
            'config check') cmd='config check' ;;
        esac
    done
    case "$cmd $prev" in
        'init --scope')
            mapfile -t COMPREPLY < <(compgen -W 'user system' -- "$cur")
            return
            ;;
        'init --engine')
            return
            ;;
        'init --engine-config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'init --runtime-path')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'init --podman-version')
            return
            ;;
        'init --image')
            return
            ;;
        'image build --base')
            return
            ;;
        'image build --ca')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'image build --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'image update --base')
            return
            ;;
        'image update --ca')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'image update --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'run --image')
            return
            ;;
        'run --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'sessions --last')
            return
            ;;
        'sessions --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'stop --profile' | 'stop -p')
            return
            ;;
        'stop --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'review --profile' | 'review -p')
            return
            ;;
        'review --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'logs --profile' | 'logs -p')
            return
            ;;
        'logs --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'logs --lines' | 'logs -n')
            return
            ;;
        'domain --profile' | 'domain -p')
            return
            ;;
        'domain --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'net allow --profile' | 'net allow -p')
            return
            ;;
        'net allow --workspace' | 'net allow -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'net allow --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'net deny --profile' | 'net deny -p')
            return
            ;;
        'net deny --workspace' | 'net deny -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'net deny --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'net list --profile' | 'net list -p')
            return
            ;;
        'net list --workspace' | 'net list -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'net list --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'net log --profile' | 'net log -p')
            return
            ;;
        'net log --workspace' | 'net log -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'net log --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit list --profile' | 'audit list -p')
            return
            ;;
        'audit list --workspace' | 'audit list -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit list --domain')
            return
            ;;
        'audit list --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit list --since')
            return
            ;;
        'audit list --until')
            return
            ;;
        'audit list --kind')
            return
            ;;
        'audit list --session')
            return
            ;;
        'audit list --verdict')
            return
            ;;
        'audit list --last')
            return
            ;;
        'audit show --profile' | 'audit show -p')
            return
            ;;
        'audit show --workspace' | 'audit show -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit show --domain')
            return
            ;;
        'audit show --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit verify --profile' | 'audit verify -p')
            return
            ;;
        'audit verify --workspace' | 'audit verify -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit verify --domain')
            return
            ;;
        'audit verify --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit verify --signed')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit verify --signer')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit export --profile' | 'audit export -p')
            return
            ;;
        'audit export --workspace' | 'audit export -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit export --domain')
            return
            ;;
        'audit export --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit export --since')
            return
            ;;
        'audit export --until')
            return
            ;;
        'audit export --kind')
            return
            ;;
        'audit export --session')
            return
            ;;
        'audit export --verdict')
            return
            ;;
        'audit export --format')
            return
            ;;
        'audit sign --profile' | 'audit sign -p')
            return
            ;;
        'audit sign --workspace' | 'audit sign -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit sign --domain')
            return
            ;;
        'audit sign --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit sign --key')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'audit sign --output')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'git status --profile' | 'git status -p')
            return
            ;;
        'git status --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'git diff --profile' | 'git diff -p')
            return
            ;;
        'git diff --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'git log --profile' | 'git log -p')
            return
            ;;
        'git log --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'git merge --profile' | 'git merge -p')
            return
            ;;
        'git merge --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'git rebase --profile' | 'git rebase -p')
            return
            ;;
        'git rebase --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'git include --profile' | 'git include -p')
            return
            ;;
        'git include --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'git drop --profile' | 'git drop -p')
            return
            ;;
        'git drop --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'git export --profile' | 'git export -p')
            return
            ;;
        'git export --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state diff --workspace' | 'state diff -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state diff --profile' | 'state diff -p')
            return
            ;;
        'state diff --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state diff --image')
            return
            ;;
        'state reset --workspace' | 'state reset -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state reset --profile' | 'state reset -p')
            return
            ;;
        'state reset --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state snapshot --workspace' | 'state snapshot -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state snapshot --profile' | 'state snapshot -p')
            return
            ;;
        'state snapshot --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state restore --workspace' | 'state restore -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state restore --profile' | 'state restore -p')
            return
            ;;
        'state restore --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state list --workspace' | 'state list -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state list --profile' | 'state list -p')
            return
            ;;
        'state list --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state rm --workspace' | 'state rm -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state rm --profile' | 'state rm -p')
            return
            ;;
        'state rm --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state rebase --workspace' | 'state rebase -w')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state rebase --profile' | 'state rebase -p')
            return
            ;;
        'state rebase --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'state rebase --image')
            return
            ;;
        'state rebase --skip')
            return
            ;;
        'prune --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'config show --profile')
            return
            ;;
        'config show --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'config show --workspace')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'config check --config')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        'config check --workspace')
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
    esac
    case $cmd in
        '')
            if [[ $cur == -* ]]; then
                words='--version --help -h'
            else
                words='init image run doctor status sessions stop review logs console domain net audit git state prune config trust completion help'
            fi
            ;;
        'init')
            if [[ $cur == -* ]]; then
                words='--scope --engine --engine-config --runtime-path --podman-version --register-only --yes -y --image --dry-run --uninstall --force --help -h'
            else
                words=''
            fi
            ;;
        'image')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words='build update list'
            fi
            ;;
        'image build')
            if [[ $cur == -* ]]; then
                words='--all --base --ca --config --no-cache --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'image update')
            if [[ $cur == -* ]]; then
                words='--dry-run --pin-only --base --ca --config --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'image list')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words=''
            fi
            ;;
        'run')
            if [[ $cur == -* ]]; then
                words='--fresh --detach -d --rm --image --config --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'doctor')
            if [[ $cur == -* ]]; then
                words='--json --help -h'
            else
                words=''
            fi
            ;;
        'status')
            if [[ $cur == -* ]]; then
                words='--watch -w --json --help -h'
            else
                words=''
            fi
            ;;
        'sessions')
            if [[ $cur == -* ]]; then
                words='--live --last --config --json --help -h'
            else
                words=''
            fi
            ;;
        'stop')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --all -a --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'review')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --accept --json --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'logs')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --follow -f --lines -n --json --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'console')
            if [[ $cur == -* ]]; then
                words='--headless --help -h'
            else
                words=''
            fi
            ;;
        'domain')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --json --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'net')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words='allow deny list log'
            fi
            ;;
        'net allow')
            if [[ $cur == -* ]]; then
                words='--profile -p --workspace -w --config --help -h'
            else
                words=''
            fi
            ;;
        'net deny')
            if [[ $cur == -* ]]; then
                words='--profile -p --workspace -w --config --help -h'
            else
                words=''
            fi
            ;;
        'net list')
            if [[ $cur == -* ]]; then
                words='--profile -p --workspace -w --config --json --help -h'
            else
                words=''
            fi
            ;;
        'net log')
            if [[ $cur == -* ]]; then
                words='--profile -p --workspace -w --config --json --blocked --help -h'
            else
                words=''
            fi
            ;;
        'audit')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words='list show verify export sign'
            fi
            ;;
        'audit list')
            if [[ $cur == -* ]]; then
                words='--profile -p --workspace -w --domain --config --since --until --kind --session --verdict --last --json --help -h'
            else
                words=''
            fi
            ;;
        'audit show')
            if [[ $cur == -* ]]; then
                words='--profile -p --workspace -w --domain --config --json --help -h'
            else
                words=''
            fi
            ;;
        'audit verify')
            if [[ $cur == -* ]]; then
                words='--profile -p --workspace -w --domain --config --signed --signer --json --help -h'
            else
                words=''
            fi
            ;;
        'audit export')
            if [[ $cur == -* ]]; then
                words='--profile -p --workspace -w --domain --config --since --until --kind --session --verdict --format --help -h'
            else
                words=''
            fi
            ;;
        'audit sign')
            if [[ $cur == -* ]]; then
                words='--profile -p --workspace -w --domain --config --key --output --help -h'
            else
                words=''
            fi
            ;;
        'git')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words='status diff log merge rebase include drop export'
            fi
            ;;
        'git status')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --json --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'git diff')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'git log')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'git merge')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'git rebase')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'git include')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'git drop')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --yes -y --force --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'git export')
            if [[ $cur == -* ]]; then
                words='--profile -p --config --list --force --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'state')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words='diff reset snapshot restore list rm rebase'
            fi
            ;;
        'state diff')
            if [[ $cur == -* ]]; then
                words='--workspace -w --profile -p --config --all --image --json --help -h'
            else
                words=''
            fi
            ;;
        'state reset')
            if [[ $cur == -* ]]; then
                words='--workspace -w --profile -p --config --yes -y --help -h'
            else
                words=''
            fi
            ;;
        'state snapshot')
            if [[ $cur == -* ]]; then
                words='--workspace -w --profile -p --config --help -h'
            else
                words=''
            fi
            ;;
        'state restore')
            if [[ $cur == -* ]]; then
                words='--workspace -w --profile -p --config --yes -y --help -h'
            else
                words=''
            fi
            ;;
        'state list')
            if [[ $cur == -* ]]; then
                words='--workspace -w --profile -p --config --json --help -h'
            else
                words=''
            fi
            ;;
        'state rm')
            if [[ $cur == -* ]]; then
                words='--workspace -w --profile -p --config --help -h'
            else
                words=''
            fi
            ;;
        'state rebase')
            if [[ $cur == -* ]]; then
                words='--workspace -w --profile -p --config --image --skip --keep --yes -y --help -h'
            else
                words=''
            fi
            ;;
        'prune')
            if [[ $cur == -* ]]; then
                words='--config --dry-run --yes -y --help -h'
            else
                words=''
            fi
            ;;
        'config')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words='show check'
            fi
            ;;
        'config show')
            if [[ $cur == -* ]]; then
                words='--profile --json --config --workspace --help -h'
            else
                words=''
            fi
            ;;
        'config check')
            if [[ $cur == -* ]]; then
                words='--config --workspace --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'trust')
            if [[ $cur == -* ]]; then
                words='--yes -y --revoke --list --help -h'
            else
                words=''
            fi
            if [[ $cur != -* ]]; then
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                return
            fi
            ;;
        'completion')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words='bash zsh fish'
            fi
            ;;
        'help')
            if [[ $cur == -* ]]; then
                words='--help -h'
            else
                words=''
            fi
            ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _lazaret lazaret
